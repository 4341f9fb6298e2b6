"""Read-only checks of a machine, a binlog folder and its server."""
