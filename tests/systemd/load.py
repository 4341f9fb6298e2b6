"""Load on a server in a machine, and which of its jobs must exist afterwards."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from processes import eventually
from systemd.machine import Machine
from wire import Client, NoReplyError, inserted_id

PROMPT_S = 20.0
BATCH = 5_000


def fill(machine: Machine, count: int) -> None:
    """Put many jobs into the tube `filled`."""
    with machine.connect() as client:
        assert client.ask(b"use filled\r\n") == b"USING filled\r\n"
        for _ in range(count // BATCH):
            client.send(b"put 0 0 60 8\r\n12345678\r\n" * BATCH)
            for _ in range(BATCH):
                inserted_id(client.reply(PROMPT_S))


def filled(client: Client) -> int:
    """Return the number of ready jobs in the tube `filled`."""
    return int(client.stats(b"stats-tube filled")["current-jobs-ready"])


class Load:
    """Puts jobs and finishes half of them until its end, and reconnects."""

    def __init__(self, machine: Machine) -> None:
        self.put: list[int] = []
        self.longest_gap_s = 0.0
        """The longest time without a reply."""
        self._deletes: set[int] = set()
        self._finished: set[int] = set()
        self._machine = machine
        self._last = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def grows(self) -> bool:
        """Return whether further jobs are acknowledged."""
        count = len(self.put)
        return eventually(lambda: len(self.put) > count + 50, PROMPT_S)

    def check(self) -> None:
        """Check that acknowledged jobs exist, and that finished ones do not."""
        with self._machine.connect() as client:
            left = {job for job in self.put if client.ask(b"peek %d\r\n" % job)[:1] == b"F"}
        assert self._finished
        assert not left & self._finished
        assert not set(self.put) - left - self._deletes

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._machine.connect() as client:
                    while not self._stopped.is_set():
                        self._work(client)
            except (OSError, NoReplyError):
                time.sleep(0.01)

    def _work(self, client: Client) -> None:
        for _ in range(2):
            self.put.append(inserted_id(client.ask(b"put 0 0 60 1\r\nx\r\n", PROMPT_S)))
        job = client.reserve()
        self._deletes.add(job)
        assert client.ask(b"delete %d\r\n" % job, PROMPT_S) == b"DELETED\r\n"
        self._finished.add(job)
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last)
        self._last = now
