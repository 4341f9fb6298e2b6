"""The files of a store: commit log, consume queues, index, checkpoint and lock."""
