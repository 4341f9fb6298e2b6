"""The archiver process, its supervisor, and the limit of its backlog."""
