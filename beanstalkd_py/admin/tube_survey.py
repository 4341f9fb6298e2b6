"""Statistics of all tubes of a server, polled repeatedly, with rates between two polls.

A local beanstalkd-py is polled through its control socket, which takes the least CPU time. Other
servers are polled by the protocol, which reports neither reserves per tube nor the age of the
oldest ready job. Both polls yield the same records.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection, Reply, connect
from beanstalkd_py.admin.local_control import WorkerRow, connect_control
from beanstalkd_py.admin.statistics import Statistics, StatsReader, server_stats
from beanstalkd_py.admin.tls_options import TlsOptions
from beanstalkd_py.control.client import ControlClient
from beanstalkd_py.control.durations import Counts, Durations, durations_between
from beanstalkd_py.control.tube_stats import NUMBERS, values


class TubeRow(NamedTuple):
    """A tube's jobs and clients, and its rates per second.

    Times are seconds. Unknown values are None: all rates in the first survey, and with the protocol
    `reserves_per_s` and `oldest_ready_s`. The latter is also None if no job is ready.
    """

    tube: str
    ready: int
    reserved: int
    delayed: int
    buried: int
    urgent: int
    using: int
    watching: int
    waiting: int
    total: int
    paused_s: float
    oldest_ready_s: float | None
    puts_per_s: float | None
    reserves_per_s: float | None
    deletes_per_s: float | None


class ServerRates(NamedTuple):
    """Rates of the whole server per second; CPU in seconds. None in the first survey."""

    puts: float | None = None
    reserves: float | None = None
    deletes: float | None = None
    timeouts: float | None = None
    cpu: float | None = None


class Survey(NamedTuple):
    """One poll. `workers` are the rows of the control socket, None with the protocol.

    `durations` is None with the protocol, and in the first survey.
    """

    at: float
    server: Statistics
    rates: ServerRates
    tubes: list[TubeRow]
    workers: list[WorkerRow] | None
    durations: Durations | None


class _TubeCounters(NamedTuple):
    """A tube's gauges and monotonic counters; None is unknown."""

    gauges: tuple[Any, ...]
    puts: int | None
    reserves: int | None
    deletes: int | None


class _Poll(NamedTuple):
    server: Statistics
    tubes: dict[str, _TubeCounters]
    workers: list[WorkerRow] | None
    durations: Mapping[str, Counts] | None


class Surveyor:
    """Polls through one connection, and through the control socket if there is one."""

    def __init__(self, connection: Connection, control: ControlClient | None) -> None:
        self._reader = StatsReader(connection)
        self._connection = connection
        self._control = control

    def _poll(self) -> _Poll:
        if self._control is None:
            server, replies = self._reader.replies()
            return _Poll(server, dict(map(_counters_of_reply, replies)), None, None)
        server = server_stats(self._connection)
        parts = self._control.parts("tubes")
        tubes = dict(_counters_of_row(row) for part in parts for row in values(part))
        workers = list(self._control.parts("workers"))
        return _Poll(server, tubes, workers, self._control.ask("durations"))

    def surveys(self, tracker: RateTracker) -> Iterator[Survey]:
        """Yield a survey, with a new poll for each. Raises NoConnectionError, ControlError."""
        while True:
            yield tracker.survey(self._poll())


class RateTracker:
    """Computes rates since the previous poll, also across connections."""

    def __init__(self) -> None:
        self._last: _Poll | None = None
        self._last_mono = 0.0

    def survey(self, poll: _Poll) -> Survey:
        now_mono = time.monotonic()
        before, passed_s = self._last, now_mono - self._last_mono
        self._last, self._last_mono = poll, now_mono
        rows = list(_rows(poll.tubes, before.tubes if before else None, passed_s))
        rates = _server_rates(poll.server, before.server, passed_s) if before else ServerRates()
        durations = None
        if before and before.durations and poll.durations:
            durations = durations_between(before.durations, poll.durations)
        return Survey(time.time(), poll.server, rates, rows, poll.workers, durations)


@contextlib.contextmanager
def open_surveyor(
    address: Address, timeout_s: float, control: Path | None, tls_options: TlsOptions | None = None
) -> Iterator[Surveyor]:
    """Connect to a server; `control` overrides the search for its control socket.

    Raises NoConnectionError, RefusedError, NoControlError.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connect(address, timeout_s, tls_options))
        if control is not None:
            client: ControlClient | None = ControlClient(control, timeout_s)
        else:
            client = connect_control(connection, address, timeout_s)
        if client is not None:
            stack.enter_context(client)
        yield Surveyor(connection, client)


_STATES = ("ready", "reserved", "delayed", "buried", "urgent")
_CLIENTS = ("using", "watching", "waiting")


def _positions(*keys: str) -> tuple[int, ...]:
    """Return the positions of values in a row of the control socket, which begins with the name."""
    return tuple(1 + NUMBERS.index(key) for key in keys)


_gauges_of = itemgetter(*_positions(*_STATES, *_CLIENTS, "total"))
_PAUSED, _OLDEST, _PUTS, _RESERVES, _DELETES = _positions(
    "pause-time-left", "oldest-ready-age-s", "total", "reserves", "cmd-delete"
)


def _counters_of_row(row: list[Any]) -> tuple[str, _TubeCounters]:
    oldest_ms = row[_OLDEST]
    oldest_s = None if oldest_ms is None else oldest_ms / 1000
    gauges = (*_gauges_of(row), row[_PAUSED] / 1000, oldest_s)
    return row[0].decode(), _TubeCounters(gauges, row[_PUTS], row[_RESERVES], row[_DELETES])


_KEYS = (
    *(b"current-jobs-" + state.encode() for state in _STATES),
    *(b"current-" + clients.encode() for clients in _CLIENTS),
    *(b"total-jobs", b"pause-time-left"),
)


def _counters_of_reply(reply: Reply) -> tuple[str, _TubeCounters]:
    # Faster than statistics.parse, for ten thousand tubes per poll.
    pairs = [line.split(b": ", 1) for line in reply.expect(b"OK").body.splitlines()[1:]]
    stats = dict(pair for pair in pairs if len(pair) == 2)
    gauges = (*(int(stats[key]) for key in _KEYS), None)
    name = stats[b"name"].decode().strip('"')
    return name, _TubeCounters(gauges, int(stats[b"total-jobs"]), None, int(stats[b"cmd-delete"]))


def _rows(
    tubes: dict[str, _TubeCounters], before: dict[str, _TubeCounters] | None, passed_s: float
) -> Iterable[TubeRow]:
    for name, counters in tubes.items():
        old = _UNKNOWN if before is None else before.get(name, _NEW)
        rates = (
            _rate(counters.puts, old.puts, passed_s),
            _rate(counters.reserves, old.reserves, passed_s),
            _rate(counters.deletes, old.deletes, passed_s),
        )
        yield TubeRow._make((name, *counters.gauges, *rates))


_NEW = _TubeCounters((), 0, 0, 0)
_UNKNOWN = _TubeCounters((), None, None, None)


def _rate(now: float | None, before: float | None, passed_s: float) -> float | None:
    if now is None or before is None or passed_s <= 0:
        return None
    # A smaller value means that the tube or the server began again after the last poll.
    return (now - before if now >= before else now) / passed_s


def _server_rates(now: Statistics, before: Statistics, passed_s: float) -> ServerRates:
    def rate(*keys: str) -> float | None:
        later, earlier = (sum(float(one.get(key, 0)) for key in keys) for one in (now, before))
        return _rate(later, earlier, passed_s)

    return ServerRates(
        puts=rate("total-jobs"),
        reserves=rate("cmd-reserve", "cmd-reserve-with-timeout"),
        deletes=rate("cmd-delete"),
        timeouts=rate("job-timeouts"),
        cpu=rate("rusage-utime", "rusage-stime"),
    )
