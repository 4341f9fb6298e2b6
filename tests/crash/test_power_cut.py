"""Kill, restart, more commands, power cut: what was acknowledged is in every image of the disk.

A library preloaded into the servers records what they ask of the disk; images are made of what was
synced, with arbitrary parts of the rest. A client's steps are in lockstep with the recording, so at
each cut it is known what was acknowledged before it.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from binlog.generations import bring_to
from binlog.workload import Worker, check, replies_in
from core.rig import Rig
from crash.disk_images import Disk, whole_records
from crash.test_kill import settle
from preloading import build_library, preload
from processes import children, eventually
from servers import Server, our_command, ours
from wire import Client

from beanstalkd_py.archiver.archive import archive_rest
from beanstalkd_py.archiver.store_settings import StoreSettings
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import WHOLE
from beanstalkd_py.binlog.verify import verify
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
    """The library."""
    source = Path(__file__).with_name("disk_recorder.c")
    return build_library(source, tmp_path_factory.mktemp("recorder"))


@dataclass
class Cut:
    """A moment at which the power may fail: a length of the recording, and what is known then."""

    at: int
    workers: list[Worker]


@dataclass
class Recording:
    """A folder whose servers are recorded, and the clients' knowledge of its jobs."""

    home: Path
    patch: pytest.MonkeyPatch
    workers: list[Worker] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    moved: int = 0
    """Jobs that compaction has moved."""

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
        """Every server that is started from now on is recorded."""
        self.folder.mkdir(parents=True)
        preload(library, self.patch)
        self.patch.setenv("RECORD_ROOT", str(self.disk))
        self.patch.setenv("RECORD_LOG", str(self.log))
        self.patch.setenv("RECORD_CONTROL", str(self.home / "control"))

    def hold_syncs(self) -> None:
        (self.home / "control").write_text("H")

    def fail_syncs(self) -> None:
        (self.home / "control").write_text("F")

    def let_syncs_go(self) -> None:
        (self.home / "control").unlink(missing_ok=True)

    def cut(self) -> None:
        """The power may fail now."""
        self.cuts.append(Cut(self.size, copy.deepcopy(self.workers)))

    def cut_during_start(self, begun_at: int, dice: random.Random) -> None:
        """The power may fail at moments since then: nothing has been acknowledged meanwhile."""
        for at in sorted(dice.randrange(begun_at, self.size + 1) for _ in range(3)):
            self.cuts.append(Cut(at, copy.deepcopy(self.workers)))

    @property
    def size(self) -> int:
        """Bytes of the recording."""
        return self.log.stat().st_size if self.log.exists() else 0

    def step(self, client: Client) -> None:
        """One step of each worker, acknowledged."""
        for worker in self.workers:
            client.send(worker.next())
            assert worker.pending is not None
            worker.take(replies_in(b"".join(client.replies(len(worker.pending.words)))))

    def send(self, client: Client) -> None:
        """One step of each worker, whose replies nobody waits for."""
        client.send(b"".join([worker.next() for worker in self.workers]))

    def find_out(self, client: Client) -> None:
        """Asks what became of the steps in doubt; the answers are promises, too."""
        puts = {
            step.after.body: (worker, step.after)
            for worker in self.workers
            if (step := worker.pending) is not None and step.job is None
        }
        for worker in self.workers:
            settle(worker, client)
        last = max(
            (job for worker in self.workers for job in (*worker.known, *worker.gone)), default=0
        )
        for job in range(last + 1, last + 1 + UNACKNOWLEDGED_IDS):
            body = client.ask(b"peek %d\r\n" % job).partition(b"\r\n")[2].removesuffix(b"\r\n")
            if body in puts:
                worker, known = puts.pop(body)
                worker.known[job] = known

    def images(self, each: int, seed: str) -> Iterator[tuple[Path, Cut]]:
        """At each cut, so many disks: first what is safe and nothing else, then arbitrary ones."""
        log = self.log.read_bytes()
        disk = Disk(self.disk, [BINLOG])
        played = 0
        for cut in self.cuts:
            at = whole_records(log, cut.at)
            disk.play(log[played:at])
            played = at
            for number in range(each):
                dice = random.Random(f"{seed} {cut.at} {number}") if number else None
                image = self.home / "image"
                disk.image(image, dice)
                yield image, cut
                shutil.rmtree(image)


Scenario = Callable[[Recording, random.Random], None]


@pytest.fixture
def recording(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """A folder in memory: syncs are recorded, not waited for."""
    home = Path(tempfile.mkdtemp(prefix="power-cut-", dir=MEMORY))
    made = Recording(home, monkeypatch)
    made.record(recorder)
    yield made
    shutil.rmtree(home)


def check_images(recording: Recording, each: int, seed: str) -> int:
    """Starts on every image; how many there were."""
    count = 0
    for image, cut in recording.images(each, seed):
        binlog = image / BINLOG
        if (binlog / "layout").exists() or (binlog / "reshard.done").exists():
            bring_to(binlog, WHOLE)
        damage = verify(inspect_folder(binlog), lambda damage: None).damage
        assert not [each for each in damage if "the file is cut" in each.what]
        with Rig(binlog, file_size=FILE) as rig:
            assert not [line for line in rig.warnings() if "the file is cut" in line]
            check(cut.workers, rig)
        if (image / HISTORY).exists():
            check_history(image, cut)
        count += 1
    return count


def check_history(image: Path, cut: Cut) -> None:
    """Each job that a client was told is gone is told of once."""
    archive_rest(StoreSettings(image / HISTORY), [image / BINLOG], print)
    with StoreReader.open(image / HISTORY) as store:
        reported = Counter(int(message.properties["KEYS"]) for message in store.scan())
    assert [job for job, times in reported.items() if times > 1] == []
    pending = {worker.pending.job for worker in cut.workers if worker.pending}
    gone = {job for worker in cut.workers for job in worker.gone}
    assert gone <= reported.keys()
    assert reported.keys() <= gone | pending


# --- scenarios -----------------------------------------------------------------------------------


def one_life(recording: Recording, steps: int, dice: random.Random, *args: str) -> None:
    """Serves from what the life before has left, until it is killed amid unsynced work."""
    begun_at = recording.size
    with ours("-b", recording.folder, *SMALL_FILES, *args) as server, server.connect() as client:
        recording.cut_during_start(begun_at, dice)
        recording.find_out(client)
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
    time.sleep(0.02)  # whatever else it does meanwhile, compaction above all
    server.kill()
    recording.let_syncs_go()


def kill_a_worker(recording: Recording, server: Server, client: Client) -> None:
    """One of several; it comes to life again by itself."""
    recording.hold_syncs()
    recording.send(client)
    time.sleep(0.05)
    before = children(server.pid)
    os.kill(before[0], 9)
    assert eventually(lambda: before[0] not in children(server.pid), SOON_S)
    recording.let_syncs_go()
    assert eventually(lambda: len(children(server.pid)) == len(before), SOON_S)


def restarts(recording: Recording, dice: random.Random) -> None:
    for _ in range(3):
        one_life(recording, 30, dice)
    assert recording.moved > 0


def stops(recording: Recording, dice: random.Random) -> None:
    """Each leaves a small file that says how long the last one is."""
    for _ in range(4):
        begun_at = recording.size
        with ours("-b", recording.folder, *SMALL_FILES) as server, server.connect() as client:
            recording.cut_during_start(begun_at, dice)
            recording.find_out(client)
            for _ in range(8):
                recording.step(client)
            begun_at = recording.size
            assert server.stop() == 0
            recording.cut_during_start(begun_at, dice)


def restarts_keeping_history(recording: Recording, dice: random.Random) -> None:
    for _ in range(3):
        one_life(recording, 12, dice, "--history", str(recording.history))


def several_workers(recording: Recording, dice: random.Random) -> None:
    for _ in range(2):
        one_life(recording, 8, dice, "--workers", "2")


def a_worker_is_replaced(recording: Recording, dice: random.Random) -> None:
    """By the server itself, while it runs."""
    args = ("-b", recording.folder, *SMALL_FILES, "--workers", "2")
    with ours(*args) as server:
        for _ in range(3):
            with server.connect() as client:
                recording.find_out(client)
                recording.cut()
                for _ in range(8):
                    recording.step(client)
                recording.cut()
                kill_a_worker(recording, server, client)
        server.kill()


def other_numbers_of_workers(recording: Recording, dice: random.Random) -> None:
    """Each life divides the folder anew, and one start is killed amid that."""
    for workers in ("1", "3", "2", "1"):
        one_life(recording, 8, dice, "--workers", workers)
        started = subprocess.Popen(
            [*our_command(), "-b", recording.folder, *SMALL_FILES, "--workers", "2"],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(dice.uniform(0.1, 0.5))
        started.kill()
        started.wait()


def synced_now_and_then(recording: Recording, dice: random.Random) -> None:
    """With -f 50 a kill keeps what no sync has covered; after the start it is on disk."""
    args = ("-b", recording.folder, *SMALL_FILES, "-f", "50")
    for _ in range(3):
        with ours(*args) as server, server.connect() as client:
            recording.find_out(client)
            recording.cut()
            for _ in range(10):
                recording.step(client)
            time.sleep(0.2)
            recording.cut()
            for _ in range(5):
                recording.step(client)
            server.kill()


def syncs_fail(recording: Recording, dice: random.Random, *more: str) -> None:
    """What a failed sync had to write is not written by a later one that succeeds."""
    args = ("-b", recording.folder, *SMALL_FILES, *more)
    for _ in range(3):
        begun_at = recording.size
        with ours(*args) as server, server.connect() as client:
            recording.cut_during_start(begun_at, dice)
            recording.find_out(client)
            recording.cut()
            for _ in range(10):
                recording.step(client)
            recording.cut()
            recording.fail_syncs()
            recording.send(client)
            assert eventually(lambda: server.exit_status is not None, SOON_S)
            assert server.exit_status == CANNOT_WRITE
            recording.let_syncs_go()


def syncs_fail_keeping_history(recording: Recording, dice: random.Random) -> None:
    syncs_fail(recording, dice, "--history", str(recording.history))


SCENARIOS = [
    restarts,
    stops,
    restarts_keeping_history,
    several_workers,
    a_worker_is_replaced,
    other_numbers_of_workers,
    synced_now_and_then,
    syncs_fail,
    syncs_fail_keeping_history,
]


def run(recording: Recording, scenario: Scenario, seed: str, each: int) -> int:
    recording.workers = [Worker(f"{seed} {i}", put_share=0.2) for i in range(4)]
    scenario(recording, random.Random(seed))
    return check_images(recording, each, seed)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_power_cuts(recording: Recording, scenario: Scenario) -> None:
    # A disk with a history has large files.
    each = 10 if "history" in scenario.__name__ else 40
    assert run(recording, scenario, "many", each) >= each * 5


@pytest.mark.parametrize(
    "scenario", [restarts, stops, a_worker_is_replaced, syncs_fail], ids=lambda each: each.__name__
)
def test_a_few_power_cuts(recording: Recording, scenario: Scenario) -> None:
    assert run(recording, scenario, "few", each=5) >= 20
