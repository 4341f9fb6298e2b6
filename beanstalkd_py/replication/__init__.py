"""Replication: the binlog on a replicated log, and a standby that serves when the primary is gone.

The log has a stream for each worker, with the bytes of its binlog files in order, and a lease. The
server with the lease is the primary. docs/internals/replication.md explains why this loses nothing.
"""
