"""A replicated log in memory, with the faults of a real one.

Each call can fail before or after its effect. A failed append can arrive later, like a delayed
packet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.folder_copy import CopyState
from beanstalkd_py.replication.log import (
    LogUnavailableError,
    Record,
    StreamEnds,
    WrongSequenceError,
)
from beanstalkd_py.replication.piece import Piece, decode_all

START = BinlogPosition(0, 0)


@dataclass
class MemoryStream:
    """Messages by sequence. `last` counts purged ones, too; `epoch` and `end` are those of it."""

    messages: dict[int, Piece] = field(default_factory=dict)
    last: int = 0
    epoch: int = 0
    end: BinlogPosition = START

    def append(self, piece: Piece, expected: int) -> None:
        if expected != self.last:
            raise WrongSequenceError(f"expected {expected}, last is {self.last}")
        self.last += 1
        # As a real server does, keep what was sent and not the object.
        piece = Piece.decode(piece.encode(), self.epoch, self.end)
        self.messages[self.last] = piece
        self.epoch, self.end = piece.epoch, piece.end


@dataclass
class MemoryCluster:
    """The contents of all streams and keys, which several connections use."""

    streams: dict[int, MemoryStream] = field(default_factory=lambda: {0: MemoryStream()})
    keys: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    revision: int = 0
    listeners: list[tuple[str, Callable[[], object]]] = field(default_factory=list)


class MemoryLog:
    """One connection to the cluster. `faults` is the share of calls that fail."""

    def __init__(self, cluster: MemoryCluster, faults: float = 0.0, seed: object = "") -> None:
        self.cluster = cluster
        self.faults = faults
        self.is_cut_off = False
        self.delayed: list[tuple[int, Piece, int]] = []
        """Appends that have failed, and can still arrive: worker, piece, expected sequence."""
        self._dice = random.Random(f"log {seed}")

    def _fails(self) -> bool:
        return self.is_cut_off or self._dice.random() < self.faults

    def _check(self) -> None:
        if self._fails():
            raise LogUnavailableError("no answer")

    async def create(self, workers: int) -> None:
        self._check()
        for worker in range(workers):
            self.cluster.streams.setdefault(worker, MemoryStream())

    async def ends(self, worker: int) -> StreamEnds:
        self._check()
        stream = self.cluster.streams[worker]
        return StreamEnds(min(stream.messages, default=stream.last + 1), stream.last)

    async def append(self, worker: int, pieces: Sequence[Piece], expected: int) -> None:
        stream = self.cluster.streams[worker]
        for number, piece in enumerate(pieces, expected):
            if self._fails():
                self.delayed.append((worker, piece, number))
                raise LogUnavailableError("no answer")
            stream.append(piece, number)
        self._check()

    def deliver(self) -> None:
        """Let the delayed appends arrive now, in any order."""
        self._dice.shuffle(self.delayed)
        for worker, piece, expected in self.delayed:
            try:
                self.cluster.streams[worker].append(piece, expected)
            except WrongSequenceError:
                continue
        self.delayed.clear()

    async def read(
        self, worker: int, after: int, last: int, state: CopyState
    ) -> list[tuple[int, Piece]]:
        self._check()
        messages = self.cluster.streams[worker].messages
        if after + 1 not in messages:
            raise LogUnavailableError("purged")
        end = min(last, after + self._dice.randrange(1, 20))
        encoded = [messages[number].encode() for number in range(after + 1, end + 1)]
        return list(enumerate(decode_all(encoded, state.epoch, state.position), after + 1))

    async def read_one(self, worker: int, sequence: int) -> bytes | None:
        self._check()
        piece = self.cluster.streams[worker].messages.get(sequence)
        return None if piece is None else piece.encode()

    async def purge(self, worker: int, before: int) -> None:
        self._check()
        messages = self.cluster.streams[worker].messages
        for number in [number for number in messages if number < before]:
            del messages[number]
        self._check()

    async def listen(self, signal: str, received: Callable[[], object]) -> None:
        self._check()
        self.cluster.listeners.append((signal, received))

    async def tell(self, signal: str) -> None:
        self._check()
        for name, received in self.cluster.listeners:
            if name == signal and not self._fails():
                received()

    async def get(self, key: str) -> Record | None:
        self._check()
        found = self.cluster.keys.get(key)
        return None if found is None else Record(json.loads(found[0]), found[1])

    async def report(self, key: str, value: dict[str, Any]) -> None:
        self._check()
        self.cluster.keys[key] = json.dumps(value).encode(), 0

    async def put(self, key: str, value: dict[str, Any], revision: int) -> int:
        self._check()
        if self.cluster.keys.get(key, (b"", 0))[1] != revision:
            raise WrongSequenceError(f"{key} does not have revision {revision}")
        self.cluster.revision += 1
        self.cluster.keys[key] = json.dumps(value).encode(), self.cluster.revision
        self._check()
        return self.cluster.revision
