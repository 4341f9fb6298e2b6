"""Commands that run, configure, examine and administer a server."""
