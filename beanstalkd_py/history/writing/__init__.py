"""Writing to a store: recovery, flush, dispatch to queues and index, expiry."""
