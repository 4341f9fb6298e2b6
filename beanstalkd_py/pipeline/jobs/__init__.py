"""Jobs over binlogs and history stores: a module with a function of DataFrames for each.

`COLUMNS` of a module are the columns it needs of entries or timelines; no others are read.
"""
