"""A core that reads its folder while it grows has what a core that reads it at once has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from binlog.workload import Actor, check, run_steps
from core.rig import START, Rig
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import FILE, Standby, replicated
from replication.test_core import adopted, replies_to

from beanstalkd_py.core.core import Core
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.errors import CoreError
from beanstalkd_py.replication.piece import Piece

LENGTH_ENTRY = 84  # bytes
COUNTERS = (
    *("ready", "delayed", "buried", "tubes", "job_bytes"),
    *("binlog_live_bytes", "binlog_oldest"),
)


class UnpurgedLog(MemoryLog):
    async def purge(self, worker: int, before: int) -> None:
        """Remove nothing, because the tests read it from the start."""


def recorded(folder: Path, actor: Actor, chance: random.Random, steps: int = 150) -> list[Piece]:
    """Return the messages of three runs, the first of which is killed; most cut into two."""
    log = UnpurgedLog(MemoryCluster())
    for start in range(3):
        with replicated(folder, log, epoch=start + 1) as (core, _):
            client = adopted(core)
            for _ in range(steps):
                client.sendall(actor.next())
                assert actor.pending is not None
                actor.take(replies_to(actor.pending, core, client))
            if start == 1:
                core.stop()
    pieces = [piece for _, piece in sorted(log.cluster.streams[0].messages.items())]
    return [part for piece in pieces for part in cut(piece, chance)]


def cut(piece: Piece, chance: random.Random) -> Iterator[Piece]:
    at = chance.randrange(len(piece.data)) if piece.data else 0
    if at:
        yield replace(piece, data=piece.data[:at])
    yield replace(piece, offset=piece.offset + at, data=piece.data[at:])


@pytest.mark.parametrize("seed", range(6))
def test_a_core_that_follows_has_the_same_jobs(folder: Path, tmp_path: Path, seed: int) -> None:
    """However often it follows, up to any byte, and whatever was removed meanwhile."""
    actor = Actor(f"follow {seed}", unique=seed % 2 == 1, moves=seed % 3 == 2, largest=1500)
    chance = random.Random(seed)
    pieces = recorded(folder, actor, chance)
    for often in (1.0, 0.3, 0.02):
        standby = Standby(MemoryLog(MemoryCluster()), tmp_path / f"copy-{often}")
        copy = standby.copy

        def follow(core: Core, often: float = often, standby: Standby = standby) -> None:
            for sequence, piece in enumerate(pieces, 1):
                standby.copy.apply(piece, sequence)
                if standby.copy.state.files and chance.random() < often:
                    core.follow(standby.copy.state.position, START)
            shutil.copytree(standby.copy.folder, tmp_path / f"fresh-{often}")

        with Rig(copy.folder, file_size=FILE, follow=follow) as followed:
            with Rig(tmp_path / f"fresh-{often}", file_size=FILE) as fresh:
                assert state(followed) == state(fresh)
                assert followed.shared.last_id == fresh.shared.last_id
                # Each start appends lengths of files if there is space already.
                more = followed.counters.binlog_bytes - fresh.counters.binlog_bytes
                assert more % LENGTH_ENTRY == 0 and abs(more) < FILE
            check([actor], followed)
            later = deepcopy(actor)
            run_steps(later, followed.client(), 50)
            followed.stop()
        with Rig(copy.folder, file_size=FILE) as again:
            check([later], again)


def state(rig: Rig) -> list[object]:
    client = rig.client()
    jobs = []
    for number in range(1, rig.shared.last_id + 1):
        for command in (b"stats-job %d\r\n", b"peek %d\r\n"):
            client.send(command % number)
            jobs.append(client.read())
    # Not in order: the core that follows has seen tubes that were deleted and came back.
    client.send(b"list-tubes\r\n")
    return [*jobs, sorted(client.read()), *(getattr(rig.counters, name) for name in COUNTERS)]


def test_a_position_that_goes_back_is_refused(folder: Path) -> None:
    with Rig(folder) as rig:
        client = rig.client()
        client.send(b"put 0 0 100 4\r\nbody\r\n")
        rig.stop()
    end = BinlogPosition(1, (folder / "binlog.1").stat().st_size)

    def follow(core: Core) -> None:
        core.follow(end, START)
        with pytest.raises(CoreError):
            core.follow(BinlogPosition(1, end.offset - 1), START)

    with Rig(folder, follow=follow):
        pass
