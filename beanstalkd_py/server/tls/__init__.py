"""The process that terminates TLS, and its supervisor."""
