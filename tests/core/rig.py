"""A core with a clock that only the test moves, and clients that are sessions without sockets.

Input is executed, committed and its output read at once, so that a test reads like a dialogue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from wire import CRLF, inserted_id, stats_of

from beanstalkd_py.core.clocks import Now
from beanstalkd_py.core.core import Core, CoreConfig
from beanstalkd_py.core.events import EventKind
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.shared_memory import new_shared

SECOND = 10**9
MILLISECOND = 10**6
YEAR = 365 * 24 * 3600 * SECOND
# Both far from zero and from each other, so that a test detects a confusion of the clocks.
START = Now(mono=77_000 * SECOND, wall=1_700_000_000 * SECOND)
# Replaces the reply to `stats`, which Python renders.
STATS_REPLY = b"OK 4\r\n---\n\r\n"
NEVER = 2**63 - 1


class Rig:
    """One core, open during a `with` block and then released as by a kill."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        file_size: int = 1 << 16,
        sync_interval_ns: int = 0,
        max_job_size: int = 65535,
        now: Now = START,
        shared: Any = None,
        limits: Limits | None = None,
        history: bool = False,
        body_memory: int = 0,
        follow: Callable[[Core], None] | None = None,
    ) -> None:
        """`follow` is called with the core before it recovers."""
        self.now = now
        self.shared = new_shared() if shared is None else shared
        self.lines: list[tuple[int, str]] = []
        config = CoreConfig(
            None if folder is None else str(folder),
            file_size,
            sync_interval_ns,
            max_job_size,
            history=history,
            body_memory=body_memory,
        )
        self.core = Core(config, self.shared, now)
        if limits is not None:
            self.core.limit(limits, now)
        try:
            if follow is not None:
                follow(self.core)
            self.core.recover(now)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release everything without writing, as a killed process does."""
        self.core.close()

    def stop(self) -> None:
        """Stop in order, as after SIGTERM."""
        self.core.stop()
        self.core.close()

    def client(self) -> RigClient:
        """A new session."""
        return RigClient(self, self.core.open(self.now))

    def settle(self) -> None:
        """End the round: output that may leave can be read now."""
        for event in self.core.events():
            if event.kind == EventKind.STATS:
                self.core.answer(event.session, STATS_REPLY, self.now)
            else:
                self.lines.append((event.level, event.text))
        self.core.commit(self.now)

    def advance(self, nanoseconds: int, wall_step: int = 0) -> int:
        """Advance both clocks, the wall clock by a further step; return the next timer's time."""
        self.now = Now(self.now.mono + nanoseconds, self.now.wall + nanoseconds + wall_step)
        return self.tick()

    def tick(self) -> int:
        """Runs what is due; returns the monotonic time of the next timer."""
        at = self.core.tick(self.now)
        self.settle()
        return at

    def log(self) -> list[str]:
        """Return the core's log lines so far, at any level."""
        self.lines += [(e.level, e.text) for e in self.core.events() if e.kind == EventKind.LOG]
        return [text for _, text in self.lines]

    def warnings(self) -> list[str]:
        """Return the warnings and errors."""
        self.log()
        return [text for level, text in self.lines if level >= logging.WARNING]

    @property
    def counters(self) -> Any:
        """The shared counters of this core."""
        return self.shared.worker[0]


class RigClient:
    """One session."""

    def __init__(self, rig: Rig, session: int) -> None:
        self.rig = rig
        self.session = session

    def send(self, data: bytes) -> None:
        """Feeds bytes and ends the round."""
        self.rig.core.feed(self.session, data, self.rig.now)
        self.rig.settle()

    def read(self) -> bytes:
        """Everything that may leave by now."""
        return self.rig.core.output(self.session)

    def ask(self, data: bytes) -> bytes:
        """Feed bytes and return the output that may leave at once."""
        self.send(data)
        return self.read()

    def ask_much(self, data: bytes) -> bytes:
        """As `ask`, for replies that exceed the output limit of a session."""
        got = b""
        while piece := self.ask(data):
            got += piece
            data = b""
        return got

    def close(self) -> None:
        """Close the connection."""
        self.rig.core.end(self.session, self.rig.now)
        self.rig.settle()

    def put(self, body: bytes = b"x", pri: int = 0, delay: int = 0, ttr: int = 100) -> int:
        """Puts a job into the tube in use; returns its id."""
        return inserted_id(self.ask(put_line(body, pri, delay, ttr)))

    def reserve(self) -> int:
        """Reserves what is ready now; returns its id."""
        reply = self.ask(b"reserve-with-timeout 0\r\n")
        assert reply.startswith(b"RESERVED "), f"no RESERVED: {reply!r}"
        return int(reply.split()[1])

    def do(self, command: bytes, reply: bytes) -> None:
        """Sends a command line that must be answered by that reply line."""
        got = self.ask(command + CRLF)
        assert got == reply + CRLF, f"{command!r} was answered {got!r}"

    def stats(self, command: bytes) -> dict[str, str]:
        """Statistics as keys and values."""
        return stats_of(self.ask(command + CRLF))

    def job(self, number: int) -> dict[str, str]:
        """stats-job of a job that exists."""
        return self.stats(b"stats-job %d" % number)

    def body(self, number: int) -> bytes | None:
        """The body of a job, or None without such a job."""
        reply = self.ask(b"peek %d\r\n" % number)
        if reply == b"NOT_FOUND\r\n":
            return None
        line, _, rest = reply.partition(CRLF)
        assert line.split()[:2] == [b"FOUND", b"%d" % number], f"no FOUND: {reply!r}"
        return rest.removesuffix(CRLF)

    def bury(self, number: int, pri: int = 0) -> None:
        """Bury a job that no client holds."""
        assert self.ask(b"reserve-job %d\r\n" % number).startswith(b"RESERVED ")
        self.do(b"bury %d %d" % (number, pri), b"BURIED")

    def use(self, tube: bytes) -> None:
        """Uses and watches that tube alone."""
        watched = self.ask(b"list-tubes-watched\r\n").split(b"\n- ")[1:]
        self.send(b"use %b\r\nwatch %b\r\n" % (tube, tube))
        for name in watched:
            if name.strip() != tube:
                self.send(b"ignore %b\r\n" % name.strip())
        self.read()


def put_line(body: bytes, pri: int = 0, delay: int = 0, ttr: int = 100) -> bytes:
    """A put with its body."""
    return b"put %d %d %d %d\r\n%b\r\n" % (pri, delay, ttr, len(body), body)
