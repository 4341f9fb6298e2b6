"""The worker process: the loop around the core, and requests between workers."""
