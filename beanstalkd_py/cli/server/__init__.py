"""Commands that run, configure, check and administer a server."""
