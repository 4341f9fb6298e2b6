"""The `export` job: binlogs and history stores as partitioned Parquet."""
