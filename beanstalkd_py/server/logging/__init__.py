"""The server's log: records, formats, and a writer that never blocks the server."""
