"""The process of the web console, and its supervisor."""
