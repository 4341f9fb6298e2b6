"""The server: a small parent that accepts, and workers that own the queue.

May import `core`; must not know the command line, the history readers or the pipeline.
"""
