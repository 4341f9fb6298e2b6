"""Binlog folders without a server on them.

It stands on `core` alone: the server and the command line call it, never the other way round.
"""
