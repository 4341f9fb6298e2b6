"""The parts of tools/workload: a seeded mix of commands, its log, and checks.

One batch of commands is in flight at a time, so the log has the order in which the server executed
them, over all connections.
"""


class WorkloadError(Exception):
    """A mistake of the user or a problem of the machine, in one sentence."""


class ContradictionError(WorkloadError):
    """A reply of the server that contradicts its earlier replies."""
