"""Binlog folders from several programs, damaged in every way, and the results of a start."""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from binlog.generations import fill, put_buried
from binlog.reader import files, number_of
from binlog.workload import Actor, replies_in
from core.rig import START, Rig, RigClient
from servers import Server, reference
from wire import Client

from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.core.clocks import Now, read_clocks

DATA = Path(__file__).parent / "data"
FILE = 4096
C_FILE = 8192
NOW = Now(START.mono, read_clocks().wall)
_NAME = re.compile(r"binlog\.(\d+)")

Job = tuple[bytes, tuple[tuple[str, str], ...]]


# --- undamaged folders ----------------------------------------------------------------------------


def work(client: Client, actor: Actor, steps: int) -> None:
    """Run steps of the actor against a server."""
    for _ in range(steps):
        client.send(actor.next())
        assert actor.pending is not None
        actor.take(replies_in(b"".join(client.replies(len(actor.pending.words)))))


def by_c(folder: Path, steps: int = 80) -> None:
    """Fill the folder with C beanstalkd, and kill it."""
    with reference("-b", folder, "-s", str(C_FILE), "-z", "65535") as server:
        serve_some(server, steps)
        server.kill()


def serve_some(server: Server, steps: int) -> None:
    """Run steps of one client, with many different jobs."""
    with server.connect() as client:
        work(client, Actor("c", plain_releases=False), steps)


def make(kind: str, folder: Path) -> None:
    """Make a folder with dozens of jobs, written by `kind`."""
    folder.mkdir()
    if kind == "ours":
        fill(folder, steps=90)
    elif kind == "c":
        by_c(folder)
    elif kind == "mixed":
        fill(folder, steps=50)
        by_c(folder, steps=30)
        with Rig(folder, file_size=FILE, now=read_clocks()) as rig:
            put_buried(rig, rig.client())
    elif kind == "v5":
        shutil.copy(DATA / "v5-1.4.6.binlog.1", folder / "binlog.1")
    elif kind == "stopped":
        with Rig(folder, file_size=FILE, now=read_clocks()) as rig:
            put_buried(rig, rig.client())
            rig.stop()
    elif kind == "history":
        with Rig(folder, now=read_clocks(), history=True) as rig:
            with_deferred_entries(rig, rig.client())
    elif kind == "attributes":
        with Rig(folder, file_size=FILE, now=read_clocks()) as rig:
            with_attributes(rig, rig.client())
    else:
        raise AssertionError(kind)


KINDS = ("ours", "c", "mixed", "v5", "stopped", "history", "attributes")


def with_attributes(rig: Rig, client: RigClient) -> None:
    """Make jobs with attributes in several files, some of which a compaction has moved."""
    jobs = []
    for number in range(80):
        options = b"expires=%d unique=key-%d window=100000" % (10**6 + number, number)
        client.do(b"with " + options, b"WITH")
        jobs.append(client.put(b"job %d" % number * 5, delay=number % 2 * 10**5))
        if number % 3:
            client.do(b"delete %d" % jobs.pop(0), b"DELETED")
    for job in jobs[:5]:
        client.bury(job)
    rig.tick()


def with_deferred_entries(rig: Rig, client: RigClient) -> None:
    """Make jobs whose reserves have deferred entries, and jobs whose last entry records them."""
    jobs = [client.put(b"job %d" % number, ttr=100) for number in range(8)]
    for job in jobs[:6]:
        assert client.reserve() == job
    rig.advance(1000)
    client.do(b"delete %d" % jobs[0], b"DELETED")
    client.do(b"release %d 5 0" % jobs[1], b"RELEASED")
    client.do(b"release %d 5 9000" % jobs[2], b"RELEASED")
    client.do(b"bury %d 0" % jobs[3], b"BURIED")
    client.do(b"touch %d" % jobs[4], b"TOUCHED")
    rig.advance(10**9)
    rig.core.truncate(b"default", ["ready"], 2, now=rig.now)
    rig.settle()


# --- damage ---------------------------------------------------------------------------------------


def _flip(dice: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0")) or 1
    for _ in range(dice.choice([1, 1, 3])):
        data[dice.randrange(min(len(data), used + 20))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def _cut(dice: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def _zeros_from(dice: random.Random, path: Path) -> None:
    data = path.read_bytes()
    at = dice.randrange(len(data))
    path.write_bytes(data[:at] + bytes(len(data) - at))


def _block(dice: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = dice.randrange(4, max(5, len(data)))
    size = min(dice.choice([1, 30, 500]), len(data) - at)
    data[at : at + size] = dice.choice([bytes(size), dice.randbytes(size), data[4 : 4 + size]])
    path.write_bytes(data)


def _remove(dice: random.Random, path: Path) -> None:
    path.unlink()


def _version(dice: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(dice.choice([5, 6, 7, 8, 2**31]).to_bytes(4, "little") + data[4:])


def _swap(dice: random.Random, path: Path) -> None:
    other = dice.choice([other for other in files(path.parent) if other.is_file()])
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def _stranger(dice: random.Random, path: Path) -> None:
    number = number_of(path)
    name = dice.choice(
        ["binlog.007", f"binlog.{number}.bad", "binlog.", "notes", "binlog.99999999999"]
    )
    (path.parent / name).write_bytes(dice.randbytes(50))


def _noise(dice: random.Random, path: Path) -> None:
    path.with_name(f"binlog.{number_of(path) + 1000}").write_bytes(
        dice.choice([b"", b"\7\0\0\0", dice.randbytes(200), b"\7\0\0\0" + dice.randbytes(300)])
    )


def _directory(dice: random.Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (
    *(_flip, _flip, _flip, _cut, _zeros_from, _block, _block),
    *(_remove, _version, _swap, _stranger, _noise, _directory),
)


def spoil(folder: Path, dice: random.Random) -> list[str]:
    """Damage the folder in up to three ways, and return their names."""
    done = []
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3])):
        there = [path for path in files(folder) if path.is_file() and path.stat().st_size > 0]
        if not there:
            break
        damage = dice.choice(DAMAGES)
        path = dice.choice([*there, there[-1]])
        damage(dice, path)
        done.append(f"{damage.__name__} {path.name}")
    return done


# --- results of a start ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """Everything that clients see of the jobs, the warnings in the log, and the last id."""

    jobs: dict[int, Job]
    buried: dict[str, list[int]]
    places: frozenset[str]
    warnings: list[str]
    last_id: int


def start(folder: Path, scratch: Path) -> Started:
    """Start on a copy, because a start changes its folder."""
    shutil.copytree(folder, scratch)
    try:
        with Rig(scratch, now=NOW) as rig:
            # Renames of files after recovery are not warnings of recovery.
            warnings = [line for line in rig.warnings() if " is not removed but " not in line]
            last_id = int(rig.shared.last_id)
            client = rig.client()
            jobs = {number: job for number in ids_in(folder) if (job := _job(client, number))}
            counters = rig.counters
            assert len(jobs) == counters.ready + counters.delayed + counters.buried
            buried = _buried(client, {dict(job[1])["tube"] for job in jobs.values()})
    finally:
        shutil.rmtree(scratch)
    return Started(jobs, buried, frozenset(map(_place, warnings)), warnings, last_id)


def ids_in(folder: Path) -> list[int]:
    """Return every id that an entry names; the counters of a start prove that none is missing."""
    rows: list[bytes] = []
    dump(inspect_folder(folder), Selection(as_json=True), lambda text: rows.append(bytes(text)))
    named = {json.loads(row).get("id") for row in b"".join(rows).splitlines()}
    return sorted(number for number in named if number is not None)


def _job(client: RigClient, number: int) -> Job | None:
    body = client.body(number)
    if body is None:
        return None
    stats = client.job(number)
    del stats["file"]
    return body, tuple(sorted(stats.items()))


def _buried(client: RigClient, tubes: set[str]) -> dict[str, list[int]]:
    """Return the buried jobs of each tube in their order."""
    order: dict[str, list[int]] = {}
    for tube in sorted(tubes):
        client.send(b"use %b\r\n" % tube.strip('"').encode())
        client.read()
        while (reply := client.ask(b"peek-buried\r\n")) != b"NOT_FOUND\r\n":
            order.setdefault(tube, []).append(int(reply.split()[1]))
            client.ask(b"kick 1\r\n")
    return order


def _place(line: str) -> str:
    """Return the binlog.N:offset of a log line; for a gap, that of the next file."""
    where = re.match(r"binlog\.\d+:\d+", line)
    if where:
        return where[0]
    name = _NAME.match(line)
    assert name is not None and "are missing" in line, line
    return f"{name[0]}:0"


def remove_foreign_files(folder: Path) -> None:
    """Remove files that C beanstalkd would misread, such as binlog.99999999999."""
    for path in folder.iterdir():
        if path not in files(folder) or len(path.name) > len("binlog.") + 9:
            path.unlink()


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return every name with its contents, to compare later."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
