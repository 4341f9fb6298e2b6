"""Finding messages: by offset, queue, key, time and conditions; as columns and Parquet."""
