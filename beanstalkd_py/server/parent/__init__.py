"""The parent process: start, supervision of the workers, reload."""
