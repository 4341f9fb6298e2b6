"""The parent process: start, supervision, reload and shutdown."""
