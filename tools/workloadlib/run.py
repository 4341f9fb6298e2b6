"""The state of a run: random generator, connections, jobs left to put."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .bodies import Bodies
from .connection import Connection
from .model import Job, Model, Tube, sha_of
from .profiles import Settings

NAMES = (
    *("mail", "thumbnails", "webhooks", "billing", "reports"),
    *("imports", "search", "exports", "audit", "sync"),
)
ZIPF = 1.1
BAD_TUBE_EVERY = 4
BAD_TUBE_BURIES = 10
MOST_COMMANDS = 256
MOST_BYTES = 1 << 20
TTRS = (60, 120, 300, 3600)
DAY_S = 86_400
LONGEST_QUIET_S = 5.0


def make_tubes(count: int, bury: float) -> list[Tube]:
    """Make tubes; one of every few buries many jobs."""
    tubes = []
    for index in range(count):
        turn, name = divmod(index, len(NAMES))
        bad = index % BAD_TUBE_EVERY == BAD_TUBE_EVERY - 1
        share = min(0.5, bury * BAD_TUBE_BURIES) if bad else bury
        tubes.append(Tube(f"{NAMES[name]}-{turn}" if turn else NAMES[name], share))
    return tubes


@dataclass
class Producer:
    connection: Connection
    used: Tube | None = None


@dataclass
class Consumer:
    name: str
    connection: Connection
    tubes: list[Tube]
    connections: int = 1

    @property
    def available(self) -> int:
        return sum(tube.ready for tube in self.tubes if not tube.unwatched)


@dataclass
class Run:
    """`operator` is the connection that watches all tubes and inspects jobs."""

    settings: Settings
    rng: random.Random
    model: Model
    bodies: Bodies
    connect: Callable[[str], Connection]
    operator: Connection
    producers: list[Producer] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    put: int = 0
    paused: int = 0
    weights: list[float] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Jobs left to put. If `size` is set, an estimate that is 0 only at the end."""
        if self.settings.jobs:
            return self.settings.jobs - self.put
        rest = self.settings.size - self.model.entry_bytes
        if rest <= 0:
            return 0
        mean = self.model.entry_bytes // self.put if self.put else 1000
        return rest // max(1, mean) + 1

    def pick_tube(self) -> Tube:
        """Pick a watched tube by its share."""
        while True:
            tube = self.rng.choices(self.model.tubes, cum_weights=self.weights)[0]
            if not tube.unwatched:
                return tube

    def job(self, tube: Tube, delay: int = 0, ttr: int = 0) -> tuple[Job, bytes]:
        """Make a job and its put command."""
        rng = self.rng
        kind, body = self.bodies.make()
        draw = rng.random()
        pri = 65_536
        if draw < 0.05:
            pri = rng.randrange(1024)
        elif draw < 0.25:
            pri = rng.randrange(1024, 200_000)
        ttr = ttr or rng.choice(TTRS)
        self.put += 1
        job = Job(tube, kind, pri, delay, ttr, len(body), sha_of(body))
        return job, b"put %d %d %d %d\r\n%b" % (pri, delay, ttr, len(body), body)

    def long_delay(self) -> int:
        """Return seconds that are longer than any run."""
        return self.rng.randrange(DAY_S, 30 * DAY_S)

    def pause(self, seconds: float) -> None:
        """Sleep, scaled by the speed."""
        if self.settings.speed > 0:
            time.sleep(min(seconds, LONGEST_QUIET_S) / self.settings.speed)


def zipf(count: int) -> list[float]:
    """Return the cumulated shares of tubes."""
    sums, total = [], 0.0
    for index in range(count):
        total += (index + 1) ** -ZIPF
        sums.append(total)
    return sums
