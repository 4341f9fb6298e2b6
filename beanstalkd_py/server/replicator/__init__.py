"""The replicator process: a standby's whole server, and the connection of a primary to the log."""
