"""The parts of tools/bench: processes, servers, the load generator, scenarios and the report."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement that cannot be made, with the sentence to show."""
