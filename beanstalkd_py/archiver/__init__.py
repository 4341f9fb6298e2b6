"""From binlogs to the history store: each job that has ended becomes one message, once.

`archive` does it, `rules` says how its store is opened, `identity` and `places` have what must be
known after a crash. Nothing here knows the server, its processes or its options.
"""
