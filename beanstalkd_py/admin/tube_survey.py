"""All tubes of a server, again and again, with what has changed from one look to the next.

From the control socket of a server of ours on this machine, which costs it least; of any other
server by the protocol, which does not tell how many jobs were reserved or how long one waits. One
shape for both. Must not know how it is shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection, Reply, connect
from beanstalkd_py.admin.local_control import control_of
from beanstalkd_py.admin.statistics import Looker, Statistics, parse
from beanstalkd_py.admin.tls_options import Trust
from beanstalkd_py.control.client import ControlClient
from beanstalkd_py.control.tube_stats import NUMBERS, values


class TubeRow(NamedTuple):
    """A tube: its jobs and clients, and what happens to it each second.

    Times are seconds. None is what is not known: rates at the first look, and by the protocol
    reserves and `oldest_ready_s`, which is None also when no job is ready.
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
    """What the whole server does each second; CPU in seconds. None at the first look."""

    puts: float | None = None
    reserves: float | None = None
    deletes: float | None = None
    timeouts: float | None = None
    cpu: float | None = None


class Survey(NamedTuple):
    """One look. `workers` are the rows of the control socket, None by the protocol."""

    at: float
    server: Statistics
    rates: ServerRates
    tubes: list[TubeRow]
    workers: list[dict[str, Any]] | None


class _Seen(NamedTuple):
    """A tube at one look. The last three only grow; None is what is not known."""

    gauges: tuple[Any, ...]
    puts: int
    reserves: int | None
    deletes: int


class _Look(NamedTuple):
    server: Statistics
    tubes: dict[str, _Seen]
    workers: list[dict[str, Any]] | None


class Surveyor:
    """Looks through one connection, and through the control socket if there is one."""

    def __init__(self, connection: Connection, control: ControlClient | None) -> None:
        self._looker = Looker(connection)
        self._connection = connection
        self._control = control

    @property
    def has_control(self) -> bool:
        """Whether all is known."""
        return self._control is not None

    def _look(self) -> _Look:
        if self._control is None:
            server, replies = self._looker.replies()
            return _Look(server, dict(map(_seen_by_protocol, replies)), None)
        server = parse(self._connection.ask_one(b"stats").expect(b"OK").body)
        parts = self._control.parts("tubes")
        tubes = dict(_seen_by_control(one) for part in parts for one in values(part))
        return _Look(server, tubes, list(self._control.parts("workers")))

    def surveys(self, before: Before) -> Iterator[Survey]:
        """One survey for each time it is asked. Raises NoConnectionError, ControlError."""
        while True:
            yield before.survey(self._look())


class Before:
    """The look before, which rates are counted from. It may outlive a connection."""

    def __init__(self) -> None:
        self._look: _Look | None = None
        self._mono = 0.0

    def survey(self, look: _Look) -> Survey:
        """What `look` says, and what has changed since the one before."""
        now_mono = time.monotonic()
        before, passed_s = self._look, now_mono - self._mono
        self._look, self._mono = look, now_mono
        rows = list(_rows(look.tubes, before.tubes if before else None, passed_s))
        rates = _server_rates(look.server, before.server, passed_s) if before else ServerRates()
        return Survey(time.time(), look.server, rates, rows, look.workers)


@contextlib.contextmanager
def surveyor(
    address: Address, timeout_s: float, control: Path | None, trust: Trust | None = None
) -> Iterator[Surveyor]:
    """A connected one. `control` is where the control socket must be, instead of where it may be.

    Raises NoConnectionError, RefusedError, NoControlError.
    """
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(connect(address, timeout_s, trust))
        if control is not None:
            found: ControlClient | None = ControlClient(control, timeout_s)
        else:
            found = control_of(connection, address, timeout_s)
        if found is not None:
            stack.enter_context(found)
        yield Surveyor(connection, found)


_gauges_of = itemgetter(
    *(
        1 + NUMBERS.index(key)
        for key in (
            *("ready", "reserved", "delayed", "buried", "urgent"),
            *("using", "watching", "waiting", "total"),
        )
    )
)
_PAUSED, _OLDEST, _PUTS, _RESERVES, _DELETES = (
    1 + NUMBERS.index(key)
    for key in ("pause-time-left", "oldest-ready-age-s", "total", "reserves", "cmd-delete")
)


def _seen_by_control(found: list[Any]) -> tuple[str, _Seen]:
    oldest_ms = found[_OLDEST]
    oldest_s = None if oldest_ms is None else oldest_ms / 1000
    gauges = (*_gauges_of(found), found[_PAUSED] / 1000, oldest_s)
    return found[0].decode(), _Seen(gauges, found[_PUTS], found[_RESERVES], found[_DELETES])


_GAUGES = (
    *(b"current-jobs-ready", b"current-jobs-reserved", b"current-jobs-delayed"),
    *(b"current-jobs-buried", b"current-jobs-urgent", b"current-using", b"current-watching"),
    *(b"current-waiting", b"total-jobs", b"pause-time-left"),
)


def _seen_by_protocol(reply: Reply) -> tuple[str, _Seen]:
    # Ten thousand of these come each time, so this is not statistics.parse.
    pairs = [line.split(b": ", 1) for line in reply.expect(b"OK").body.splitlines()[1:]]
    found = dict(pair for pair in pairs if len(pair) == 2)
    gauges = (*(int(found[key]) for key in _GAUGES), None)
    name = found[b"name"].decode().strip('"')
    return name, _Seen(gauges, int(found[b"total-jobs"]), None, int(found[b"cmd-delete"]))


def _rows(
    tubes: dict[str, _Seen], before: dict[str, _Seen] | None, passed_s: float
) -> Iterable[TubeRow]:
    unknown = None, None, None
    for name, seen in tubes.items():
        if before is None:
            yield TubeRow._make((name, *seen.gauges, *unknown))
            continue
        old = before.get(name, _NEW)
        rates = (
            _rate(seen.puts, old.puts, passed_s),
            _rate(seen.reserves, old.reserves, passed_s),
            _rate(seen.deletes, old.deletes, passed_s),
        )
        yield TubeRow._make((name, *seen.gauges, *rates))


_NEW = _Seen((), 0, 0, 0)
"""What a tube had that was not there."""


def _rate(now: float | None, before: float | None, passed_s: float) -> float | None:
    if now is None or before is None or passed_s <= 0:
        return None
    # Less than before: the tube, or the server, has begun anew meanwhile.
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
