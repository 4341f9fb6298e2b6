"""A command for a job of which nobody remembers who has it: every other shard is asked in turn.

Only ids put very long ago are not known (owners.h), so this may take its time. Knows nothing of
sockets; it says whom to ask, and is told what they answer.
"""

from __future__ import annotations

NOT_FOUND = b"NOT_FOUND\r\n"


class Probe:
    """One command and the shards that have not been asked."""

    def __init__(self, line: bytes, shards: list[int]) -> None:
        self.line = line
        self._shards = shards
        self.asked = -1
        self._answer = b""

    def next_shard(self) -> int | None:
        """Whom to ask now; None when all have been asked."""
        self._answer = b""
        self.asked = self._shards.pop(0) if self._shards else -1
        return None if self.asked < 0 else self.asked

    def on_output(self, data: bytes) -> bytes | None:
        """What has been said so far if it is the answer; None: not known yet, or not there."""
        self._answer += data
        return None if NOT_FOUND.startswith(self._answer) else self._answer

    @property
    def refused(self) -> bool:
        """Whether the shard asked last does not have the job."""
        return self._answer == NOT_FOUND
