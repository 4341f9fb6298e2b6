"""What every process of the server uses: start, channel, shared memory, exit status."""
