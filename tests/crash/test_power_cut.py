"""Kill, restart, run more commands, cut the power: every disk image has all acknowledged changes.

A preloaded library records the file operations of the servers. The images have everything that was
synced and random parts of the rest. The clients' steps are in lockstep with the recording, so that
the acknowledged changes before each cut are known.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from binlog.generations import bring_to
from binlog.workload import Actor, check, replies_in
from core.rig import Rig
from crash.disk_images import Disk, whole_records
from crash.history_of_image import check_history
from crash.recorder import build_recorder, record_below
from crash.test_kill import settle
from processes import children, eventually
from servers import Server, our_command, ours
from wire import Client

from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import WHOLE
from beanstalkd_py.binlog.verify import verify
from beanstalkd_py.history.files import layout
from beanstalkd_py.history.reader import StoreReader

MEMORY = Path("/dev/shm")
FILE = 4096
SMALL_FILES = ("-s", str(FILE))
CANNOT_WRITE = 74
SOON_S = 10.0
UNACKNOWLEDGED_IDS = 20
BINLOG = "binlog"
HISTORY = "history"


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_recorder(tmp_path_factory.mktemp("recorder"))


@dataclass
class Cut:
    """A possible power cut: a length of the recording, and the clients' knowledge at that time."""

    at: int
    actors: list[Actor]


@dataclass
class Recording:
    """The recording of a folder's servers, and the clients' knowledge of its jobs."""

    home: Path
    patch: pytest.MonkeyPatch
    actors: list[Actor] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    moved: int = 0
    """Jobs that compaction has moved."""
    images_made: int = 0

    @property
    def disk(self) -> Path:
        return self.home / "disk"

    @property
    def folder(self) -> Path:
        return self.disk / BINLOG

    @property
    def history(self) -> Path:
        return self.disk / HISTORY

    @property
    def log(self) -> Path:
        return self.home / "recording"

    def record(self, library: Path) -> None:
        """Record every server that is started from now on."""
        self.folder.mkdir(parents=True)
        record_below(self.home, library, self.patch)

    def hold_syncs(self) -> None:
        (self.home / "control").write_text("H")

    def fail_syncs(self) -> None:
        (self.home / "control").write_text("F")

    def release_syncs(self) -> None:
        (self.home / "control").unlink(missing_ok=True)

    @contextlib.contextmanager
    def ready_to_kill(self) -> Iterator[None]:
        """Wait until each change of a file is recorded, and let nobody begin one meanwhile."""
        with self.log.open("rb") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield

    def cut(self) -> None:
        """Add a possible power cut at this moment."""
        self.cuts.append(Cut(self.size, copy.deepcopy(self.actors)))

    def cut_while_idle(self, begun_at: int, dice: random.Random) -> None:
        """Add possible power cuts since `begun_at`; the server acknowledged nothing since then."""
        for at in sorted(dice.randrange(begun_at, self.size + 1) for _ in range(3)):
            self.cuts.append(Cut(at, copy.deepcopy(self.actors)))

    @property
    def size(self) -> int:
        """Bytes of the recording."""
        return self.log.stat().st_size if self.log.exists() else 0

    def step(self, client: Client) -> None:
        """Run one step of each actor, and wait for the replies."""
        for actor in self.actors:
            client.send(actor.next())
            assert actor.pending is not None
            actor.take(replies_in(b"".join(client.replies(len(actor.pending.words)))))

    def send(self, client: Client) -> None:
        """Send one step of each actor without waiting for replies."""
        client.send(b"".join([actor.next() for actor in self.actors]))

    def settle_pending_steps(self, client: Client) -> None:
        """Query the outcome of the pending steps; each reply is an acknowledgement, too."""
        puts = {
            step.after.body: (actor, step.after)
            for actor in self.actors
            if (step := actor.pending) is not None and (step.job is None or step.moved)
        }
        moves = [step for actor in self.actors if (step := actor.pending) and step.moved]
        for actor in self.actors:
            settle(actor, client)
        last = max((job for actor in self.actors for job in (*actor.known, *actor.gone)), default=0)
        for job in range(last + 1, last + 1 + UNACKNOWLEDGED_IDS):
            body = client.ask(b"peek %d\r\n" % job).partition(b"\r\n")[2].removesuffix(b"\r\n")
            if body in puts:
                actor, known = puts.pop(body)
                actor.known[job] = known
        ended = {job for actor in self.actors for job in actor.gone}
        assert not [step for step in moves if step.job in ended and step.after.body in puts]

    def images(self, each: int, seed: str) -> Iterator[tuple[Path, Cut]]:
        """Yield the images at each cut: first the durable changes only, then random ones.

        `each` are made at each cut. Of equal ones at the same cut only the first is yielded.
        """
        log = self.log.read_bytes()
        disk = Disk(self.disk, [BINLOG])
        played = 0
        for cut in self.cuts:
            at = whole_records(log, cut.at)
            disk.play(log[played:at])
            played = at
            seen = set[bytes]()
            for number in range(each):
                dice = random.Random(f"{seed} {cut.at} {number}") if number else None
                image = disk.image(dice)
                self.images_made += 1
                if image.key in seen:
                    continue
                seen.add(image.key)
                image.write(self.home / "image")
                yield self.home / "image", cut
                shutil.rmtree(self.home / "image")


Scenario = Callable[[Recording, random.Random], None]


@pytest.fixture
def recording(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """A recorded folder in memory, where syncs cost no time."""
    home = Path(tempfile.mkdtemp(prefix="power-cut-", dir=MEMORY))
    made = Recording(home, monkeypatch)
    made.record(recorder)
    yield made
    shutil.rmtree(home)


def check_images(recording: Recording, each: int, seed: str) -> int:
    """Start on every image, and return their number, with those that equal others."""
    for image, cut in recording.images(each, seed):
        binlog = image / BINLOG
        guarded = (binlog / "lock").is_symlink()  # until the end of a reshard
        if guarded or (binlog / "layout").exists() or (binlog / "reshard.done").exists():
            bring_to(binlog, WHOLE)
        damage = verify(inspect_folder(binlog), lambda damage: None).damage
        assert not [each for each in damage if "the file is cut" in each.what]
        # Without a history it would remove files that the archiver has not read.
        with Rig(binlog, file_size=FILE, history=(image / HISTORY).exists()) as rig:
            assert not [line for line in rig.warnings() if "the file is cut" in line]
            check(cut.actors, rig)
        if (image / HISTORY).exists():
            check_history(image / HISTORY, binlog, cut.actors)
    return recording.images_made


# --- scenarios -----------------------------------------------------------------------------------


def serve_and_kill(recording: Recording, steps: int, dice: random.Random, *args: str) -> None:
    """Serve the folder, run steps, and kill the server during unsynced work."""
    begun_at = recording.size
    with ours("-b", recording.folder, *SMALL_FILES, *args) as server, server.connect() as client:
        recording.cut_while_idle(begun_at, dice)
        recording.settle_pending_steps(client)
        recording.cut()
        for _ in range(steps):
            recording.step(client)
            if dice.random() < 0.2:
                recording.cut()
        recording.moved += int(client.stats()["binlog-records-migrated"])
        kill_with_unsynced_work(recording, server, client)


def kill_with_unsynced_work(recording: Recording, server: Server, client: Client) -> None:
    recording.hold_syncs()
    size = recording.size
    recording.send(client)
    assert eventually(lambda: recording.size > size, SOON_S)
    time.sleep(0.02)  # for other work, such as compaction
    with recording.ready_to_kill():
        server.kill()
    recording.release_syncs()


def kill_one_worker(recording: Recording, server: Server, client: Client) -> None:
    """Kill one of several workers; the parent starts it again."""
    recording.hold_syncs()
    recording.send(client)
    time.sleep(0.05)
    before = children(server.pid)
    with recording.ready_to_kill():
        os.kill(before[0], 9)
    assert eventually(lambda: before[0] not in children(server.pid), SOON_S)
    recording.release_syncs()
    assert eventually(lambda: len(children(server.pid)) == len(before), SOON_S)


def restarts(recording: Recording, dice: random.Random) -> None:
    for _ in range(3):
        serve_and_kill(recording, 30, dice)
    assert recording.moved > 0


def restarts_with_few_bodies_in_memory(recording: Recording, dice: random.Random) -> None:
    for workers in ("1", "1", "2"):
        serve_and_kill(recording, 20, dice, "--body-memory", "500", "--workers", workers)
    assert recording.moved > 0


def restarts_with_policies(recording: Recording, dice: random.Random) -> None:
    """Jobs that come back have entries of their own, which no reply waits for."""
    config = recording.home / "policies.toml"
    config.write_text('[tube."*"]\nmax-reserves = 1000000\n')
    for workers in ("1", "1", "2"):
        serve_and_kill(recording, 20, dice, "--config", str(config), "--workers", workers)


def stops(recording: Recording, dice: random.Random) -> None:
    """Stop the server gracefully; each stop adds a small file with a length entry."""
    for _ in range(4):
        begun_at = recording.size
        with ours("-b", recording.folder, *SMALL_FILES) as server, server.connect() as client:
            recording.cut_while_idle(begun_at, dice)
            recording.settle_pending_steps(client)
            for _ in range(8):
                recording.step(client)
            begun_at = recording.size
            assert server.stop() == 0
            recording.cut_while_idle(begun_at, dice)


def restarts_with_history(recording: Recording, dice: random.Random) -> None:
    """Let the archiver, which starts later than the server, take part in every step."""
    args = ("-b", recording.folder, *SMALL_FILES, "--history", recording.history)
    dispatched = recording.history / layout.DISPATCHED
    for _ in range(3):
        begun_at = recording.size
        begun_ns = time.time_ns()
        with ours(*args) as server, server.connect() as client:
            opened = partial(is_changed, dispatched, begun_ns)
            assert eventually(opened, SOON_S)
            recording.cut_while_idle(begun_at, dice)
            recording.settle_pending_steps(client)
            for _ in range(12):
                recording.step(client)
                begun_at = recording.size
                assert eventually(partial(is_archived, recording), SOON_S)
                if dice.random() < 0.3:
                    recording.cut_while_idle(begun_at, dice)
            kill_with_unsynced_work(recording, server, client)


def is_changed(path: Path, since_ns: int) -> bool:
    return path.exists() and path.stat().st_mtime_ns > since_ns


def is_archived(recording: Recording) -> bool:
    """Return whether the history has every job whose deletion was acknowledged."""
    gone = {job for actor in recording.actors for job in actor.gone}
    with StoreReader.open(recording.history) as store:
        return gone <= {int(message.properties["KEYS"]) for message in store.scan()}


def several_workers(recording: Recording, dice: random.Random) -> None:
    for _ in range(2):
        serve_and_kill(recording, 8, dice, "--workers", "2")


def worker_replacement(recording: Recording, dice: random.Random) -> None:
    """Kill a worker while the server runs; the server replaces it."""
    args = ("-b", recording.folder, *SMALL_FILES, "--workers", "2")
    with ours(*args) as server:
        for _ in range(3):
            with server.connect() as client:
                recording.settle_pending_steps(client)
                recording.cut()
                for _ in range(8):
                    recording.step(client)
                recording.cut()
                kill_one_worker(recording, server, client)
        with recording.ready_to_kill():
            server.kill()


def changing_numbers_of_workers(recording: Recording, dice: random.Random) -> None:
    """Change the number of workers at every start, and kill one start while it reshards."""
    for workers in ("1", "3", "2", "1"):
        serve_and_kill(recording, 8, dice, "--workers", workers)
        started = subprocess.Popen(
            [*our_command(), "-b", recording.folder, *SMALL_FILES, "--workers", "2"],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(dice.uniform(0.1, 0.5))
        with recording.ready_to_kill():
            started.kill()
            started.wait()


def interval_syncs(recording: Recording, dice: random.Random) -> None:
    """With -f 50, a kill keeps unsynced entries; the next start syncs them."""
    args = ("-b", recording.folder, *SMALL_FILES, "-f", "50")
    for _ in range(3):
        with ours(*args) as server, server.connect() as client:
            recording.settle_pending_steps(client)
            recording.cut()
            for _ in range(10):
                recording.step(client)
            time.sleep(0.2)
            recording.cut()
            for _ in range(5):
                recording.step(client)
            with recording.ready_to_kill():
                server.kill()


def failed_syncs(recording: Recording, dice: random.Random, *more: str) -> None:
    """Check that a later successful sync does not write what a failed sync lost."""
    args = ("-b", recording.folder, *SMALL_FILES, *more)
    for _ in range(3):
        begun_at = recording.size
        with ours(*args) as server, server.connect() as client:
            recording.cut_while_idle(begun_at, dice)
            recording.settle_pending_steps(client)
            recording.cut()
            for _ in range(10):
                recording.step(client)
            recording.cut()
            recording.fail_syncs()
            recording.send(client)
            assert eventually(lambda: server.exit_status is not None, SOON_S)
            assert server.exit_status == CANNOT_WRITE
            recording.release_syncs()


def failed_syncs_with_history(recording: Recording, dice: random.Random) -> None:
    failed_syncs(recording, dice, "--history", str(recording.history))


SCENARIOS = [
    restarts,
    restarts_with_few_bodies_in_memory,
    restarts_with_policies,
    stops,
    restarts_with_history,
    several_workers,
    worker_replacement,
    changing_numbers_of_workers,
    interval_syncs,
    failed_syncs,
    failed_syncs_with_history,
]


def run(recording: Recording, scenario: Scenario, seed: str, each: int) -> int:
    recording.actors = [
        Actor(f"{seed} {i}", put_share=0.2, unique=i % 2 == 0, moves=i < 2) for i in range(4)
    ]
    scenario(recording, random.Random(seed))
    return check_images(recording, each, seed)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_power_cuts(recording: Recording, scenario: Scenario) -> None:
    # A disk with a history has large files.
    each = 5 if "history" in scenario.__name__ else 40
    assert run(recording, scenario, "many", each) >= each * 5


@pytest.mark.parametrize(
    "scenario",
    [restarts, restarts_with_few_bodies_in_memory, worker_replacement, failed_syncs],
    ids=lambda each: each.__name__,
)
def test_a_few_power_cuts(recording: Recording, scenario: Scenario) -> None:
    assert run(recording, scenario, "few", each=5) >= 20


@pytest.mark.slow
def test_jobs_that_a_policy_moves_are_in_one_of_the_tubes(recording: Recording) -> None:
    config = recording.home / "policies.toml"
    config.write_text('[tube.default]\nmax-reserves = 1\nthen = "move:dead"\n')
    acknowledged: dict[int, set[bytes]] = {}
    bodies: set[bytes] = set()
    for restart in range(3):
        words = ("-b", recording.folder, *SMALL_FILES, "--config", config)
        with ours(*words) as server, server.connect() as client:
            for number in range(12):
                body = b"%d of %d" % (number, restart)
                job = client.put(body)
                bodies.add(body)
                for line in (b"reserve-job %d\r\n" % job, b"release %d 0 0\r\n" % job):
                    client.ask(line)
                recording.cut()
                acknowledged[recording.cuts[-1].at] = set(bodies)
            assert client.stats(b"stats-tube dead")["current-jobs-ready"] == str(len(bodies))
            jobs = []
            for number in range(4):
                bodies.add(body := b"unsynced %d of %d" % (number, restart))
                jobs.append(client.put(body))
                client.ask(b"reserve-job %d\r\n" % jobs[-1])
            recording.hold_syncs()
            size = recording.size
            client.send(b"".join(b"release %d 0 0\r\n" % job for job in jobs))
            assert eventually(lambda size=size: recording.size > size, SOON_S)
            recording.cut()
            acknowledged[recording.cuts[-1].at] = set(bodies)
            with recording.ready_to_kill():
                server.kill()
            recording.release_syncs()
    for image, cut in recording.images(8, "moves"):
        with Rig(image / BINLOG, file_size=FILE) as rig:
            client_of_image = rig.client()
            last = int(rig.shared.last_id)
            found = {client_of_image.body(number) for number in range(1, last + 1)}
        assert acknowledged[cut.at] <= found
    assert recording.images_made >= 200
