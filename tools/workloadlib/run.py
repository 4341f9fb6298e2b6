"""What all steps share: the random generator, the connections, what is still to be put."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .bodies import Bodies
from .connection import Connection
from .settings import Settings
from .world import Job, Tube, World, sha_of

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
    """Of every few, one is of workers that bury a lot."""
    tubes = []
    for index in range(count):
        turn, name = divmod(index, len(NAMES))
        bad = index % BAD_TUBE_EVERY == BAD_TUBE_EVERY - 1
        share = min(0.5, bury * BAD_TUBE_BURIES) if bad else bury
        tubes.append(Tube(f"{NAMES[name]}-{turn}" if turn else NAMES[name], share))
    return tubes


@dataclass
class Producer:
    """A connection and the tube that it uses."""

    connection: Connection
    used: Tube | None = None


@dataclass
class Consumer:
    """A connection and the tubes that it watches; `lives` are its connections so far."""

    name: str
    connection: Connection
    tubes: list[Tube]
    lives: int = 1

    @property
    def available(self) -> int:
        """Jobs that it can reserve."""
        return sum(tube.ready for tube in self.tubes if not tube.away)


@dataclass
class Run:
    """One run. `operator` is the connection that keeps all tubes alive and looks at jobs."""

    settings: Settings
    rng: random.Random
    world: World
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
        """Jobs still to be put; of runs by size an estimate that is 0 only at the end."""
        if self.settings.jobs:
            return self.settings.jobs - self.put
        rest = self.settings.size - self.world.entry_bytes
        if rest <= 0:
            return 0
        mean = self.world.entry_bytes // self.put if self.put else 1000
        return rest // max(1, mean) + 1

    def pick_tube(self) -> Tube:
        """One that is not away, by its share."""
        while True:
            tube = self.rng.choices(self.world.tubes, cum_weights=self.weights)[0]
            if not tube.away:
                return tube

    def job(self, tube: Tube, delay: int = 0, ttr: int = 0) -> tuple[Job, bytes]:
        """A new one and the command that puts it."""
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
        """Seconds, longer than any run."""
        return self.rng.randrange(DAY_S, 30 * DAY_S)

    def rest(self, seconds: float) -> None:
        """A pause as long as the speed makes it."""
        if self.settings.speed > 0:
            time.sleep(min(seconds, LONGEST_QUIET_S) / self.settings.speed)


def zipf(count: int) -> list[float]:
    """Sums of the shares of tubes."""
    sums, total = [], 0.0
    for index in range(count):
        total += (index + 1) ** -ZIPF
        sums.append(total)
    return sums
