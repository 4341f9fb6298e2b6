"""Workers are killed while clients wait in reserves over tubes of all of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from processes import children, eventually
from servers import Server, ours
from wire import Client, NoReplyError

WORKERS = 4
CLIENTS = 200
TUBES = [b"tube-%d" % number for number in range(30)]
WATCHED = 5
KILLS = 8
KILL_EVERY_S = 2.0
PUT_EVERY_S = 0.005
LIMIT_S = 120
LONGEST_WAIT_S = 3.0
"""From the reply to the put, or the last kill, until a client has the job."""


class Run:
    """The clients of one server, and when which job was put and reserved."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.all_put = threading.Event()
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.kills: list[float] = [0.0]
        self.put: dict[int, float] = {}
        self.taken: set[int] = set()
        self.waits: list[float] = []

    def produce(self, dice: random.Random) -> None:
        """Put numbered jobs; a put without a reply does not count."""
        client = None
        for number in itertools.count():
            if self.all_put.wait(PUT_EVERY_S):
                break
            try:
                client = client or self.server.connect()
                client.ask(b"use %b\r\n" % dice.choice(TUBES))
                client.put(b"%d" % number)
                with self.lock:
                    self.put[number] = time.monotonic()
            except (OSError, AssertionError):
                client = None

    def consume(self, dice: random.Random) -> None:
        """Reserve and delete, and connect again after each end of the connection."""
        tubes = dice.sample(TUBES, WATCHED)
        while not self.ended.is_set():
            with contextlib.suppress(OSError, NoReplyError), self.server.connect() as client:
                for tube in tubes:
                    client.ask(b"watch %b\r\n" % tube)
                client.ask(b"ignore default\r\n")
                while not self.ended.is_set():
                    self._take(client)

    def _take(self, client: Client) -> None:
        reply = client.ask(b"reserve\r\n", timeout_s=LIMIT_S)
        if not reply.startswith(b"RESERVED "):
            return
        now = time.monotonic()
        line, body = reply.split(b"\r\n")[:2]
        number = int(body)
        with self.lock:
            self.taken.add(number)
            if number in self.put:
                self.waits.append(now - max(self.put[number], self.kills[-1]))
        client.ask(b"delete %b\r\n" % line.split()[1])

    def kill_one(self, dice: random.Random) -> None:
        pids = children(self.server.pid)
        with self.lock:
            self.kills.append(time.monotonic())
        os.kill(dice.choice(pids), signal.SIGKILL)

    def waiting(self) -> set[int]:
        """Return the jobs that no client has got."""
        with self.lock:
            return self.put.keys() - self.taken


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_no_job_waits_while_a_client_wants_it(tmp_path: Path) -> None:
    dice = random.Random(20)
    with ours("--workers", str(WORKERS), "-b", tmp_path, "-f", "0") as server:
        run = Run(server)
        loops = [run.produce, *[run.consume] * CLIENTS]
        threads = [
            threading.Thread(target=loop, args=(random.Random(number),), daemon=True)
            for number, loop in enumerate(loops)
        ]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(KILL_EVERY_S)
            run.kill_one(dice)
        time.sleep(KILL_EVERY_S)
        run.all_put.set()
        assert eventually(lambda: not run.waiting(), LONGEST_WAIT_S)
        run.ended.set()
    for thread in threads:
        thread.join()
    print(f"{len(run.put)} jobs, longest wait {max(run.waits):.2f} s")
    assert len(run.put) > KILLS * KILL_EVERY_S / PUT_EVERY_S / 10
    assert max(run.waits) < LONGEST_WAIT_S
