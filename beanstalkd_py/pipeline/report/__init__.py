"""The report: an HTML page about rates, waiting times, tubes, dead letters and binlogs.

gather.py and gather_timelines.py fill the records of data.py by Spark; the other modules render
them without Spark.
"""
