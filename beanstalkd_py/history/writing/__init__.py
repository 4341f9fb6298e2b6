"""Writing to a store: recovery, flushes, dispatch to queues and index, expiry."""
