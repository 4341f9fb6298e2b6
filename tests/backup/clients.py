"""Clients that work during a backup, the jobs of a restored folder, and the kill of a command."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from binlog.generations import Contents, contents
from binlog.workload import Actor
from servers import Server

from beanstalkd_py.binlog.layout import WHOLE, folders_of, read_layout
from beanstalkd_py.binlog.steps import Steps


class KilledError(BaseException):
    """Ends a command like a kill, because nothing handles it."""


def killed_at_every_step(command: Callable[[Steps], None]) -> Iterator[None]:
    """Run a command again and again, each time for one step more; yield after each kill."""
    for steps in itertools.count():
        done = itertools.count()

        def before(_step: str, done: Iterator[int] = done, steps: int = steps) -> None:
            if next(done) == steps:
                raise KilledError

        try:
            command(Steps(before))
        except KilledError:
            yield
        else:
            return


@dataclass
class Client:
    """An actor that works without pause."""

    actor: Actor
    guard: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, server: Server) -> None:
        with server.connect() as client:
            while not self.stopped.is_set():
                with self.guard:
                    step = self.actor.next()
                    assert self.actor.pending is not None
                    count = len(self.actor.pending.words)
                client.send(step)
                replies = client.replies(count)
                with self.guard:
                    self.actor.take(replies)

    def bodies(self) -> set[bytes]:
        """Return the bodies of all jobs but the one that its last command may be changing."""
        with self.guard:
            step = self.actor.pending
            changing = step.job if step is not None else None
            return {job.body for number, job in self.actor.known.items() if number != changing}

    def gone(self) -> set[int]:
        with self.guard:
            return set(self.actor.gone)

    def changing(self) -> set[int]:
        """Return the job that its last command may have ended."""
        with self.guard:
            step = self.actor.pending
            return {step.job} if step is not None and step.job is not None else set()


@contextlib.contextmanager
def at_work(clients: Sequence[Client], server: Server) -> Iterator[None]:
    """Let clients work during the block, each in a thread."""
    threads = [threading.Thread(target=each.run, args=(server,)) for each in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in clients:
            each.stopped.set()
        for thread in threads:
            thread.join()


def contents_of(folder: Path) -> Contents:
    """Return the jobs of a folder, divided or not."""
    return contents(folders_of(folder, read_layout(folder) or WHOLE))
