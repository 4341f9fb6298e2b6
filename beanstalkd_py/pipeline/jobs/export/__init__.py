"""The `export` job: binlogs and history stores as Delta Lake tables."""
