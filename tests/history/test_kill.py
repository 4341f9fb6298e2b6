"""Kill -9 at any time: each acknowledged message is there once, and no message is incomplete."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from history.stores import BY_HAND, SMALL, opened
from processes import eventually

from beanstalkd_py.history.store import Message, Options, Store
from beanstalkd_py.history.verify import verify

START_S = 30.0
WRITERS = """
import os
import signal
import sys

from beanstalkd_py.history.store import Message, Options, Sizes, Store


def write(folder, acknowledged):
    options = Options(sizes=Sizes(4096, 16, 8, 32), retention=None, queue_flush_seconds=0.005)
    with open(acknowledged, "a") as out, Store.open(folder, options) as store:
        last = store.last()
        number = int(last.properties["UNIQ_KEY"]) + 1 if last else 0
        while True:
            store.append(
                [
                    Message(
                        topic="ab"[n % 2],
                        body=b"x" * (n % 200),
                        properties={"UNIQ_KEY": str(n), "KEYS": f"k{n}"},
                    )
                    for n in range(number, number + 1 + number % 9)
                ],
                durable=True,
            )
            number += 1 + number % 9
            print(number, file=out, flush=True)


while sys.stdin.readline():
    writer = os.fork()
    if writer == 0:
        write(*sys.argv[1:])
    print(writer, flush=True)
    if not sys.stdin.readline():  # the test has ended
        os.kill(writer, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]), flush=True)
"""
"""A process that forks one writer after another, which costs less than importing each time.

After a line it prints the id of a new writer, after the next line the exit code of that writer.
"""


class Writers:
    """Writers of one store, one after another."""

    def __init__(self, folder: Path, acknowledged: Path) -> None:
        self.acknowledged = acknowledged
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITERS, str(folder), str(acknowledged)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def _ask(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def write_until_killed(self, seconds: float) -> None:
        """Continue writing after the last message, and kill the writer at a random moment."""
        self.acknowledged.touch()
        before = self.acknowledged.stat().st_size
        writer = self._ask()
        assert eventually(lambda: self.acknowledged.stat().st_size > before, START_S)
        time.sleep(seconds)
        os.kill(writer, signal.SIGKILL)
        assert self._ask() == -signal.SIGKILL


def assert_each_once(folder: Path, acknowledged: Path) -> None:
    lines = acknowledged.read_text().split("\n")
    known = int(lines[-2]) if len(lines) > 1 else 0
    with opened(folder, Options(background=False, retention=None)) as store:
        keys = [each.properties["UNIQ_KEY"] for each in store.scan()]
        assert len(keys) >= known
        assert keys == [str(number) for number in range(len(keys))]
        report = verify(store)
        assert report.faults == []
        assert (report.messages, report.units, report.entries) == (
            len(keys),
            len(keys),
            2 * len(keys),
        )
        for number in random.Random(1).choices(range(len(keys)), k=20):
            (found,) = store.query("ab"[number % 2], f"k{number}")
            assert found.properties["UNIQ_KEY"] == str(number)


def test_acknowledged_messages_survive_kills(tmp_path):
    with Writers(tmp_path / "store", tmp_path / "acknowledged") as writers:
        for _ in range(2):
            writers.write_until_killed(0.05)
            assert_each_once(tmp_path / "store", tmp_path / "acknowledged")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_acknowledged_messages_survive_many_kills(tmp_path):
    dice = random.Random(11)
    with Writers(tmp_path / "store", tmp_path / "acknowledged") as writers:
        for _ in range(60):
            writers.write_until_killed(dice.random() * 0.3)
    assert_each_once(tmp_path / "store", tmp_path / "acknowledged")
    with Store.open(tmp_path / "store", BY_HAND) as store:
        assert store.recovered.was_clean is False
        assert store.sizes == SMALL
        store.append([Message(topic="t")])
