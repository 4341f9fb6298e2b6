"""A load on a server, in tubes that nobody else has anything to do with, which it leaves empty.

Must not know how it is told what to do, or how figures are shown.
"""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import NOT_FOUND, Connection, connect, open_socket
from beanstalkd_py.admin.statistics import TubeStats, parse
from beanstalkd_py.core.load_generator import Command, Load, LoadFailedError, Role, Times
from beanstalkd_py.plural import counted

SLICE_S = 0.1
"""How long it works before it looks at signals again."""
SPARE_DESCRIPTORS = 64
DRAIN_DEPTH = 256
DRAIN_PAUSE_S = 0.02
SHARES = (0.5, 0.9, 0.99, 0.999)
_REFUSALS = {
    "DRAINING": "the server takes no new jobs (it drains)",
    "OUT_OF_MEMORY": "the server has no room for more jobs, in memory or on disk",
    "JOB_TOO_BIG": "the server takes no jobs of this size; see max-job-size in its stats",
    "DEADLINE_SOON": "a job was held for too long: the server, or this machine, hangs",
}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to do. `rate` is jobs put each second by all connections, 0 for as many as can be.

    `cycles` connections put, reserve and delete; `producers` put, `consumers` reserve and delete.
    """

    tubes: tuple[str, ...]
    cycles: int
    producers: int
    consumers: int
    depth: int
    body_bytes: int
    warmup_s: float
    seconds: float
    rate: float

    @property
    def connections(self) -> int:
        """All of them."""
        return self.cycles + self.producers + self.consumers

    @property
    def interval_s(self) -> float:
        """From one batch of puts of a connection to the next."""
        return self.depth * (self.cycles + self.producers) / self.rate if self.rate else 0.0

    def roles(self) -> list[Role]:
        """One for each connection."""
        return (
            [Role.CYCLES] * self.cycles
            + [Role.PRODUCER] * self.producers
            + [Role.CONSUMER] * self.consumers
        )


@dataclass
class Outcome:
    """What was measured, by the command; `drained` jobs were left at the end, and removed."""

    seconds: float
    times: dict[Command, Times]
    drained: int = 0

    def per_s(self, command: Command) -> float:
        """Replies each second."""
        return self.times[command].count / self.seconds if self.seconds else 0.0


def is_here(address: Address, timeout_s: float) -> bool:
    """Whether the server is on this machine's loopback, or behind a Unix socket."""
    if address.path:
        return True
    with open_socket(address, timeout_s) as opened:
        return ipaddress.ip_address(opened.getpeername()[0].partition("%")[0]).is_loopback


def check_tubes(connection: Connection, tubes: tuple[str, ...]) -> None:
    """Raises ToolUsageError if anybody else has to do with one of them."""
    replies = connection.ask([b"stats-tube " + tube.encode() for tube in tubes])
    for tube, reply in zip(tubes, replies, strict=True):
        if reply is NOT_FOUND:
            continue
        stats = TubeStats.read(reply)
        what = ""
        if stats.alive:
            what = f"it has {counted(stats.alive)}"
        elif tube == "default" or stats.using or stats.watching:
            what = "others use or watch it"
        if what:
            raise errors.ToolUsageError(f"tube {tube}: {what}; give --tube another name, or none")


def put_load(
    address: Address,
    timeout_s: float,
    plan: LoadPlan,
    progress: Callable[[int], None],
    say: Callable[[str], None],
) -> Outcome:
    """Does it and empties the tubes again, also when it is interrupted.

    `progress` is told how many jobs were put, from time to time; `say` what is left behind if that
    cannot be removed. Raises RefusedError, NoConnectionError, ToolUsageError.
    """
    _have_descriptors(plan.connections)
    with connect(address, timeout_s) as connection:
        check_tubes(connection, plan.tubes)
        limit = int(parse(connection.ask_one(b"stats").expect(b"OK").body).get("max-job-size", 0))
    if limit and plan.body_bytes > limit:
        text = (
            f"jobs of {counted(plan.body_bytes, 'byte')} are larger than the server takes: {limit}"
        )
        raise errors.ToolUsageError(f"{text}; give a smaller --size")
    outcome = None
    try:
        outcome = _loaded(address, timeout_s, plan, progress)
    finally:
        drained = _drained(address, timeout_s, plan.tubes, say)
        if outcome is not None:
            outcome.drained = drained
    return outcome


def _drained(
    address: Address, timeout_s: float, tubes: tuple[str, ...], say: Callable[[str], None]
) -> int:
    which = f"tube {tubes[0]}" if len(tubes) == 1 else f"tubes {tubes[0]} to {tubes[-1]}"
    each = tubes[0] if len(tubes) == 1 else "TUBE"
    left = f"jobs may be left in {which}; 'beanstalkd-py truncate {each}' removes them"
    try:
        return drain(address, timeout_s, tubes)
    except errors.BeanstalkdError as error:
        say(f"{left}: {error}")
        return 0
    except (KeyboardInterrupt, SystemExit):
        say(left)
        raise


def drain(address: Address, timeout_s: float, tubes: tuple[str, ...]) -> int:
    """Removes all jobs from the tubes; how many there were. Raises as put_load, IncompleteError."""
    load = Load(depth=DRAIN_DEPTH, body_bytes=0)
    end_mono = time.monotonic() + timeout_s
    with connect(address, timeout_s) as connection, _opened(address, timeout_s, 1) as (opened,):
        _prepare(opened, tubes[0], tubes)
        load.add(opened.fileno(), Role.DRAIN)
        while True:
            load.start(0, 0)
            _run(load, address, timeout_s, lambda: None)
            # What was held by connections closed just now is ready when the server sees that.
            replies = connection.ask([b"stats-tube " + tube.encode() for tube in tubes])
            alive = sum(TubeStats.read(one).alive for one in replies if one is not NOT_FOUND)
            if not alive:
                return load.replies(Command.DELETE)
            if time.monotonic() > end_mono:
                raise errors.IncompleteError(f"{counted(alive)} cannot be reserved")
            time.sleep(DRAIN_PAUSE_S)


def _loaded(
    address: Address, timeout_s: float, plan: LoadPlan, progress: Callable[[int], None]
) -> Outcome:
    load = Load(plan.depth, plan.body_bytes, plan.interval_s)
    with _opened(address, timeout_s, plan.connections) as sockets:
        for number, (opened, role) in enumerate(zip(sockets, plan.roles(), strict=True)):
            used = plan.tubes[number % len(plan.tubes)]
            # Whoever does cycles takes what it puts; a consumer takes whatever there is.
            watched = plan.tubes if role is Role.CONSUMER else (used,)
            _prepare(opened, used, watched)
            load.add(opened.fileno(), role)
        load.start(plan.warmup_s, plan.seconds)
        _run(load, address, timeout_s, lambda: progress(load.replies(Command.PUT)))
    return Outcome(plan.seconds, {one: load.measured(one, SHARES) for one in Command})


def _run(load: Load, address: Address, timeout_s: float, after: Callable[[], None]) -> None:
    try:
        while load.run(SLICE_S):
            after()
            if load.silence_s > max(timeout_s, 2 * SLICE_S):
                text = f"{address} answers nothing for {timeout_s:g} s; give a longer --timeout"
                raise errors.NoConnectionError(text)
    except LoadFailedError as error:
        if not error.refusal:
            raise errors.NoConnectionError(f"{address}: {error}") from error
        command, _, word = error.refusal.partition(" ")
        reason = _REFUSALS.get(word, "the server refused")
        raise errors.RefusedError(word, f"{command}: {reason} ({word})") from error


@contextlib.contextmanager
def _opened(address: Address, timeout_s: float, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open_socket(address, timeout_s)) for _ in range(count)]


def _prepare(opened: socket.socket, used: str, watched: tuple[str, ...]) -> None:
    """Makes a connection use and watch these tubes alone. Raises NoConnectionError."""
    lines = [f"use {used}", *(f"watch {tube}" for tube in watched)]
    if "default" not in watched:
        lines.append("ignore default")
    try:
        opened.sendall("".join(f"{line}\r\n" for line in lines).encode())
        with opened.makefile("rb") as replies:
            for line in lines:
                reply = replies.readline(256).rstrip()
                if reply.split(b" ")[0] not in (b"USING", b"WATCHING"):
                    said = reply.decode(errors="replace") or "nothing"
                    raise errors.RefusedError(said, f"{line}: the server answered {said}")
    except OSError as error:
        raise errors.NoConnectionError(f"the connection is lost: {error}") from error


def _have_descriptors(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and wanted > hard:
        text = f"{connections} connections need more descriptors than the {hard} allowed"
        raise errors.ToolUsageError(f"{text}; raise the limit (ulimit -n), or give fewer")
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
