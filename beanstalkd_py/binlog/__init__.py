"""Work on binlog folders without a server. The package imports only `core`."""
