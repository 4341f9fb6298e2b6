"""The process that terminates TLS, and its supervision."""
