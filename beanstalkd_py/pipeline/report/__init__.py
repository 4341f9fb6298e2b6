"""The report: one HTML page of what jobs did, how long they waited, and what the disk holds.

`page.py` makes it out of plain records (`data.py`); `gather.py` alone knows Spark.
"""
