"""Every job that ends becomes one message, whenever its binlog files are read."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from core.history.simulated_binlogs import (
    HEADER,
    MOST_BODY,
    JobMessage,
    World,
    follow,
    read_all,
    step,
    topic_of,
    unpack,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py.core.job_history import JobHistories

pytestmark = pytest.mark.costly

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

DICE = st.tuples(
    st.integers(0, 99), st.integers(0, 50), st.integers(0, 2**32 - 1), st.integers(0, 1000)
)
STEPS = st.lists(DICE, max_size=60)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, history=st.booleans(), most=st.integers(2, 12), budget=st.integers(1, 4000))
def test_every_message_field_by_field(
    steps: list[tuple[int, int, int, int]], history: bool, most: int, budget: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        world = World(Path(top), 2, history, most)
        histories = JobHistories(topic_of, MOST_BODY, most)
        follow(world, histories)
        messages: list[list[JobMessage]] = [[], []]
        for number, dice in enumerate(steps):
            step(world, dice)
            server = world.servers[number % 2]
            folder = server.index
            messages[folder] += read_all(histories, folder, server.number, server.size, budget)
        for server in world.servers:
            folder = server.index
            messages[folder] += read_all(histories, folder, server.number, server.size, budget)
            assert messages[folder] == server.messages
            if server.size == len(HEADER):
                continue  # the file has no entries yet
            assert histories.position(folder) == (server.number, server.size)
            pins = [job.file for job in world.live.values() if job.folder == folder]
            assert histories.needed_from(folder) == min([*pins, server.number])
        assert histories.stats.open == len(world.live)
        assert histories.stats.finished == sum(len(server.messages) for server in world.servers)
        assert histories.stats.orphans == 0
        assert histories.faults() == []
        histories.close()


class Archive:
    """A correct archiver: its state when it is killed, and how it continues."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stored: list[list[JobMessage]] = [[] for _ in world.servers]
        self.kept: tuple[bytes, list[tuple[int, int]]] | None = None
        self.start()

    def start(self) -> None:
        """Restart as after a kill, with the last saved state."""
        self.histories = JobHistories(topic_of, MOST_BODY, self.world.most_events)
        follow(self.world, self.histories)
        if self.kept is not None:
            data, places = self.kept
            self.histories.load_checkpoint(data)
            for folder, place in enumerate(places):
                self.histories.set_checkpointed(folder, *place)
        for folder, stored in enumerate(self.stored):
            if stored:
                self.histories.set_archived(folder, *stored[-1].place)

    def read(self, folder: int, budget: int) -> None:
        server = self.world.servers[folder]
        self.stored[folder] += read_all(self.histories, folder, server.number, server.size, budget)

    def read_some(self, folder: int, budget: int) -> None:
        """Read only a part."""
        server = self.world.servers[folder]
        progress = self.histories.read(folder, server.number, server.size, budget)
        self.stored[folder] += unpack(progress.items)

    def keep(self, delete: bool) -> None:
        """Save the position, then delete the files that are not needed."""
        places = [self.histories.position(server.index) for server in self.world.servers]
        self.kept = self.histories.save_checkpoint(), places
        for server in self.world.servers if delete else ():
            for path in server.path.glob("binlog.*.done"):
                if int(path.suffixes[0][1:]) < self.histories.needed_from(server.index):
                    path.unlink()

    def kill(self) -> None:
        self.histories.close()
        self.start()

    def act(self, action: int, budget: int) -> None:
        """Do one of the above, or nothing; `action` is 0 to 15."""
        if action < 6:
            self.read_some(action % 2, budget)
        elif action < 8:
            self.read(action % 2, budget)
        elif action < 11:
            self.keep(delete=action < 10)
        elif action < 13:
            self.kill()

    def finish(self) -> None:
        """Read the rest, and check that each job history is complete."""
        for server in self.world.servers:
            self.read(server.index, 1000)
            assert self.stored[server.index] == server.messages
        assert self.histories.stats.open == len(self.world.live)
        assert self.histories.faults() == []
        self.histories.close()


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(st.tuples(DICE, st.integers(0, 15), st.integers(1, 1500)), max_size=80),
    history=st.booleans(),
    most=st.integers(2, 12),
)
def test_going_on_after_a_kill_is_as_going_on_without(
    steps: list[tuple[tuple[int, int, int, int], int, int]], history: bool, most: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        world = World(Path(top), 2, history, most)
        archive = Archive(world)
        for dice, action, budget in steps:
            step(world, dice)
            archive.act(action, budget)
        archive.finish()


def live_long(seed: int) -> int:
    """As above, until hypothesis continues; return how many jobs have ended."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as top:
        world = World(Path(top), 2, dice.random() < 0.5, dice.randrange(2, 12))
        archive = Archive(world)
        for _ in range(dice.randrange(50, 250)):
            what = dice.choice((dice.randrange(100), dice.randrange(46, 100)))
            step(world, (what, dice.randrange(50), dice.randrange(2**32), dice.randrange(1000)))
            archive.act(dice.randrange(16), dice.randrange(1, 1500))
        archive.finish()
        return sum(len(server.messages) for server in world.servers)


def test_long_histories() -> None:
    assert sum(live_long(seed) for seed in range(30)) > 300


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_long_histories() -> None:
    assert sum(live_long(seed) for seed in range(1000, 2500)) > 20_000
