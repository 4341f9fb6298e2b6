"""Spark drivers in processes that tests kill, and servers under load."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from processes import eventually
from servers import ours
from wire import Client, inserted_id

START_S = 180.0
MOMENT_S = 60.0
SESSION = """
import sys, time
from pyspark.sql import SparkSession
from beanstalkd_py import pipeline
builder = SparkSession.builder.master("local[2]")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
pipeline.register(spark)
"""


class Driver:
    """A process that runs a script with a session `spark` and prints `begun`."""

    def __init__(self, script: str, *args: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SESSION + script, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
        self._errors: list[str] = []
        self._reading = threading.Thread(target=self._read_errors, daemon=True)
        self._reading.start()
        guard = threading.Timer(START_S, self.kill)
        guard.daemon = True
        guard.start()
        assert self._process.stdout is not None
        begun = self._process.stdout.readline()
        guard.cancel()
        assert begun == "begun\n", "".join(self._errors)[-3000:]

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors += self._process.stderr

    def kill(self, java_too: bool = True) -> None:
        assert self._process.poll() is None, "".join(self._errors)[-3000:]
        if java_too:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        assert eventually(self._is_gone, 60)

    def _is_gone(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 0)
            return all(_is_zombie(pid) for pid in _group(self._process.pid))
        return True


def _group(number: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == number:
                    members.append(int(entry.name))
    return members


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@contextmanager
def repeating(step: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Repeat something in the background; fail at the end if it failed."""
    ending = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not ending.wait(pause_s):
                step()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(30)
    assert failed == []


@contextmanager
def working_server(folder: Path, seed: int) -> Iterator[None]:
    """A server that keeps most jobs, so that nothing is compacted and no file removed.

    It works slowly, because exports that are killed again and again must keep up.
    """
    dice = random.Random(seed)
    with (
        ours("-b", folder, "-s", "16384") as server,
        server.connect() as client,
        repeating(lambda: work(client, dice), pause_s=0.25),
    ):
        yield


def work(client: Client, dice: random.Random) -> None:
    client.ask(b"use tube-%d\r\n" % dice.randrange(3))
    jobs = [inserted_id(_put(client, dice)) for _ in range(dice.randrange(1, 8))]
    job = dice.choice(jobs)
    match dice.randrange(4):
        case 0:
            client.ask(b"delete %d\r\n" % job)
        case 1:
            client.ask(b"reserve-job %d\r\n" % job)
            client.ask(b"bury %d 1\r\n" % job)
            if dice.random() < 0.5:
                client.ask(b"kick-job %d\r\n" % job)
        case 2:
            client.ask(b"reserve-job %d\r\n" % job)
            client.ask(b"release %d 1 3600\r\n" % job)


def _put(client: Client, dice: random.Random) -> bytes:
    body = dice.randbytes(dice.randrange(200)).hex().encode()
    return client.ask(b"put 1 %d 60 %d\r\n%s\r\n" % (dice.randrange(2) * 900, len(body), body))


def kill_repeatedly(
    start: Callable[[], Driver], moments: Sequence[Callable[[], bool]], seed: int, most_s: float
) -> Iterator[int]:
    """Start a driver for each moment and kill it at a random time after it; yield their numbers."""
    dice = random.Random(seed)
    for number, moment in enumerate(moments):
        driver = start()
        assert eventually(moment, MOMENT_S)
        time.sleep(dice.uniform(0.0, most_s))
        driver.kill(java_too=number % 2 == 0)
        yield number
