"""Start, channel, shared memory and exit status of the server's processes."""
