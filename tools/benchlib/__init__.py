"""The parts of tools/bench: processes, servers, the load generator, scenarios and the report."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement is impossible; the text is the message to show."""
