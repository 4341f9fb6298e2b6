"""What operators ask of binlogs and history stores: jobs of Spark, a function of DataFrames each.

A module for each job. It says in `COLUMNS` what it needs of entries, so that no more is read, and
must not know where they come from or where its result goes.
"""
