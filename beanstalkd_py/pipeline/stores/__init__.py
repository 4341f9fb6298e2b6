"""History stores as a Spark source and as DataFrames."""
