"""Run the tools on large folders: bounded memory, and the guaranteed speed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.reader import HEADER, JOBREC, SHORT, files

from beanstalkd_py.binlog.file_usage import folder_usage
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Reader, ReadResult, Selection
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.shared_memory import new_shared

MIB = 1 << 20
START_BYTES = 45 * MIB
"""Memory of Python and of the mapped windows of files."""
PER_JOB_BYTES = 10
"""Memory of a live job without a short entry."""
PROMISED_BYTES_PER_S = 300 * 10**6
COMMANDS = (
    ("verify",),
    ("dump",),
    ("dump", "--json", "--tube", "t1"),
    ("stats", "--json"),
)


def fill(folder: Path, size: int, body: int, deleted: int = 0) -> int:
    """Write `size` bytes of entries, delete `deleted` of 10 jobs; return the live jobs' number."""
    folder.mkdir(parents=True)
    core = Core(CoreConfig(str(folder), 10 * MIB, -1), new_shared())
    core.recover()
    session = core.open()
    jobs = written = 0
    text = os.urandom(body)
    while written < size:
        parts = [b"use t%d\r\n" % (jobs % 7)]
        for _ in range(500):
            jobs += 1
            parts.append(b"put 9 0 60 %d\r\n%b\r\n" % (body, text))
            if jobs % 10 < deleted:
                parts.append(b"delete %d\r\n" % jobs)
                written += SHORT
        written += 500 * (body + SHORT + 4)
        core.feed(session, b"".join(parts))
        core.commit()
        while core.output(session):
            core.commit()
    core.stop()
    core.close()
    return jobs - sum(1 for job in range(1, jobs + 1) if job % 10 < deleted)


def fill_elsewhere(folder: Path, size: int, body: int) -> int:
    """Fill the folder in another process, which frees the memory of the jobs when it ends."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fill(folder, size, body)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return folder_usage(inspect_folder(folder)).total().jobs


# The maximum RSS of an ended child includes the memory of its parent before exec.
MEASURED = """
import atexit, re, sys
from beanstalkd_py.cli.main import main
def tell():
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
atexit.register(tell)
main(["binlog", *sys.argv[1:]])
"""


def peak_bytes(*args: str | Path) -> int:
    """Run a command that must succeed, and return its peak memory."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, args)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return int(done.stderr.split()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_is_proportional_to_live_jobs(tmp_path: Path) -> None:
    """A folder of 10 GB with bodies of 600 bytes takes less than 200 MB."""
    folder = tmp_path / "jobs"
    jobs = fill_elsewhere(folder, 1500 * MIB, 600)
    bound = START_BYTES + jobs * PER_JOB_BYTES
    assert START_BYTES + 10**10 // (600 + SHORT + 4) * PER_JOB_BYTES < 200 * 10**6
    for command in COMMANDS:
        assert peak_bytes(*command, folder) < bound, command
    assert peak_bytes("compact", "-s", str(100 * MIB), folder) < bound
    path = files(folder)[0]
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"rot")
    assert peak_bytes("repair", "--output", tmp_path / "new", folder) < bound


def sparse(path: Path, body: int) -> None:
    """Write one job of C beanstalkd whose body is a hole."""
    record = JOBREC.pack(7, 1, bytes(4), 0, 10**9, body, bytes(4), 1, 0, *[0] * 5, 1, bytes(3))
    head = (7).to_bytes(HEADER, "little") + (4).to_bytes(4, "little") + b"mail" + record
    with path.open("wb") as file:
        file.write(head)
        file.seek(len(head) + body - 2)
        file.write(b"\r\n")


@pytest.fixture
def hole(folder: Path) -> Iterator[Path]:
    sparse(folder / "binlog.1", 200 * MIB)
    yield folder


@pytest.mark.slow
def test_no_body_is_read_into_memory_completely(hole: Path) -> None:
    """A body may have a gigabyte."""
    assert peak_bytes("verify", hole) < START_BYTES
    assert peak_bytes("dump", hole) < START_BYTES
    before = (hole / "binlog.1").stat().st_size
    with (hole / "binlog.1").open("ab") as file:
        file.write(bytes(5))  # so that there is something to free
    assert peak_bytes("compact", hole) < START_BYTES
    assert [path.name for path in files(hole)] == ["binlog.2", "binlog.3"]
    assert files(hole)[0].stat().st_size == before
    assert peak_bytes("verify", hole) < START_BYTES


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("body", [256, 600, 1000])
@pytest.mark.parametrize("printed", ["nothing", "columns", "json"])
def test_speed_on_one_core(tmp_path: Path, body: int, printed: str) -> None:
    """Measured in CPU time, so that other processes do not matter."""
    fill(tmp_path / "jobs", 300 * MIB, body, deleted=5)
    reader = Reader(str(tmp_path / "jobs"), 5)
    if printed != "nothing":
        reader.print(Selection(as_json=printed == "json"))
    began = time.process_time()
    size = 0
    with Path(os.devnull).open("wb") as out:
        for path in files(tmp_path / "jobs"):
            reader.open(int(path.suffix[1:]), path.name)
            while reader.run(64 * MIB) == ReadResult.MORE:
                out.write(reader.text())
            size += reader.facts().end
    took_s = time.process_time() - began
    reader.close()
    assert size / took_s > PROMISED_BYTES_PER_S
