"""Binlog files as a Spark source and as DataFrames."""
