"""The parts of tools/workload: a seeded mix of commands, the log of it, and checks.

One command batch is under way at a time, so the order of the log is the order in which the server
did it, over all connections.
"""


class WorkloadError(Exception):
    """A mistake of the user, or of the machine: one sentence for whoever runs it."""


class ContradictionError(WorkloadError):
    """The server answered what by all that it has answered before it could not."""
