"""Accepting connections and routing each to a worker."""
