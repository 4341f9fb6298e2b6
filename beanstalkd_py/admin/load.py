"""Generate load on a server in tubes of its own, and remove all jobs afterwards."""

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
from beanstalkd_py.admin.statistics import TubeStats, max_job_size, stats_tube_command
from beanstalkd_py.core.load_generator import Command, Load, LoadFailedError, Role, Times
from beanstalkd_py.plural import counted

SLICE_S = 0.1
"""Interval between checks for signals."""
SPARE_DESCRIPTORS = 64
DRAIN_DEPTH = 256
DRAIN_PAUSE_S = 0.02
QUANTILES = (0.5, 0.9, 0.99, 0.999)
_REFUSALS = {
    "DRAINING": "the server accepts no new jobs because it is draining",
    "OUT_OF_MEMORY": "the server has no space for more jobs, in memory or on disk",
    "JOB_TOO_BIG": "the jobs exceed max-job-size; see the server's stats",
    "DEADLINE_SOON": "a job stayed reserved too long; the server or this machine hangs",
}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Settings of a load. `rate` is puts per second of all connections; 0 is unlimited.

    `cycles` connections put, reserve and delete; `producers` put; `consumers` reserve and delete.
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
        return self.cycles + self.producers + self.consumers

    @property
    def interval_s(self) -> float:
        """The time between two batches of puts of one connection."""
        return self.depth * (self.cycles + self.producers) / self.rate if self.rate else 0.0

    def roles(self) -> list[Role]:
        return (
            [Role.CYCLES] * self.cycles
            + [Role.PRODUCER] * self.producers
            + [Role.CONSUMER] * self.consumers
        )


@dataclass
class LoadResult:
    """Measurements by command; `drained` jobs were left at the end and removed."""

    seconds: float
    times: dict[Command, Times]
    drained: int = 0

    def per_s(self, command: Command) -> float:
        return self.times[command].count / self.seconds if self.seconds else 0.0


def is_local(address: Address, timeout_s: float) -> bool:
    if address.path:
        return True
    with open_socket(address, timeout_s) as opened:
        return ipaddress.ip_address(opened.getpeername()[0].partition("%")[0]).is_loopback


def check_tubes(connection: Connection, tubes: tuple[str, ...]) -> None:
    """Raise ToolUsageError if a tube has jobs or is used by other clients."""
    replies = connection.execute_all([stats_tube_command(tube) for tube in tubes])
    for tube, reply in zip(tubes, replies, strict=True):
        if reply is NOT_FOUND:
            continue
        stats = TubeStats.read(reply)
        reason = ""
        if stats.alive:
            reason = f"it has {counted(stats.alive)}"
        elif tube == "default" or stats.using or stats.watching:
            reason = "other clients use or watch it"
        if reason:
            raise errors.ToolUsageError(f"tube {tube}: {reason}; use another --tube, or none")


def run_load(
    address: Address,
    timeout_s: float,
    options: LoadOptions,
    progress: Callable[[int], None],
    warn: Callable[[str], None],
) -> LoadResult:
    """Run the load and empty the tubes afterwards, also when interrupted.

    `progress` receives the number of jobs put so far; `warn` receives a message if jobs may be left
    behind. Raises RefusedError, NoConnectionError, ToolUsageError.
    """
    _raise_descriptor_limit(options.connections)
    with connect(address, timeout_s) as connection:
        check_tubes(connection, options.tubes)
        limit = max_job_size(connection)
    if options.body_bytes > limit:
        size = counted(options.body_bytes, "byte")
        raise errors.ToolUsageError(
            f"jobs of {size} exceed the server's max-job-size of {limit}; use a smaller --size"
        )
    result = None
    try:
        result = _generate(address, timeout_s, options, progress)
    finally:
        drained = _clean_up(address, timeout_s, options.tubes, warn)
        if result is not None:
            result.drained = drained
    return result


def _clean_up(
    address: Address, timeout_s: float, tubes: tuple[str, ...], warn: Callable[[str], None]
) -> int:
    several = f"tubes {tubes[0]} to {tubes[-1]}"
    text, argument = (several, "TUBE") if len(tubes) > 1 else (f"tube {tubes[0]}", tubes[0])
    left = f'jobs may be left in {text}; run "beanstalkd-py truncate {argument}"'
    try:
        return drain(address, timeout_s, tubes)
    except errors.BeanstalkdError as error:
        warn(f"{left}: {error}")
        return 0
    except (KeyboardInterrupt, SystemExit):
        warn(left)
        raise


def drain(address: Address, timeout_s: float, tubes: tuple[str, ...]) -> int:
    """Remove all jobs from the tubes; return their number. Raises IncompleteError, among others."""
    load = Load(depth=DRAIN_DEPTH, body_bytes=0)
    end_mono = time.monotonic() + timeout_s
    with connect(address, timeout_s) as connection, _opened(address, timeout_s, 1) as (opened,):
        _prepare(opened, tubes[0], tubes)
        load.add(opened.fileno(), Role.DRAIN)
        while True:
            load.start(0, 0)
            _run(load, address, timeout_s, lambda: None)
            # The server makes jobs of connections ready some time after these are closed.
            replies = connection.execute_all([stats_tube_command(tube) for tube in tubes])
            alive = sum(TubeStats.read(one).alive for one in replies if one is not NOT_FOUND)
            if not alive:
                return load.replies(Command.DELETE)
            if time.monotonic() > end_mono:
                raise errors.IncompleteError(f"{counted(alive)} cannot be reserved")
            time.sleep(DRAIN_PAUSE_S)


def _generate(
    address: Address, timeout_s: float, options: LoadOptions, progress: Callable[[int], None]
) -> LoadResult:
    load = Load(options.depth, options.body_bytes, options.interval_s)
    with _opened(address, timeout_s, options.connections) as sockets:
        for number, (opened, role) in enumerate(zip(sockets, options.roles(), strict=True)):
            used = options.tubes[number % len(options.tubes)]
            watched = options.tubes if role is Role.CONSUMER else (used,)
            _prepare(opened, used, watched)
            load.add(opened.fileno(), role)
        load.start(options.warmup_s, options.seconds)
        _run(load, address, timeout_s, lambda: progress(load.replies(Command.PUT)))
    times = {command: load.measured(command, QUANTILES) for command in Command}
    return LoadResult(options.seconds, times)


def _run(load: Load, address: Address, timeout_s: float, report: Callable[[], None]) -> None:
    try:
        while load.run(SLICE_S):
            report()
            if load.silence_s > max(timeout_s, 2 * SLICE_S):
                text = f"{address} does not reply within {timeout_s:g} s; use a longer --timeout"
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
    """Make a connection use and watch only these tubes. Raises NoConnectionError."""
    lines = [f"use {used}", *(f"watch {tube}" for tube in watched)]
    if "default" not in watched:
        lines.append("ignore default")
    try:
        opened.sendall("".join(f"{line}\r\n" for line in lines).encode())
        with opened.makefile("rb") as replies:
            for line in lines:
                reply = replies.readline(256).rstrip()
                if reply.split(b" ")[0] not in (b"USING", b"WATCHING"):
                    text = reply.decode(errors="replace") or "nothing"
                    raise errors.RefusedError(text, f"{line}: the server replied {text}")
    except OSError as error:
        raise errors.NoConnectionError(f"lost the connection: {error}") from error


def _raise_descriptor_limit(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and needed > hard:
        text = f"{connections} connections exceed the limit of {hard} open files"
        raise errors.ToolUsageError(f"{text}; raise it with ulimit -n, or use fewer connections")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
