"""The part of a shard: sessions that stand for connections of one other worker.

Frames of their home come in and become calls of the core; what the proxies say goes back. Must not
know what the home does with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from beanstalkd_py import errors
from beanstalkd_py.core.core import NEVER, Core, Outcome, read_clocks
from beanstalkd_py.server.frames import Frame, Kind, pieces


class Proxies:
    """All proxies for connections of worker `peer`; `send` adds a frame to what it is told.

    `has_room` says whether this worker can take on one more connection.
    """

    def __init__(
        self, core: Core, peer: int, send: Callable[[Frame], None], has_room: Callable[[], bool]
    ) -> None:
        self._core = core
        self._has_room = has_room
        self._peer = peer
        self._send = send
        self._proxies: dict[int, int] = {}
        self._homes: dict[int, int] = {}
        self._counts: dict[bytes, tuple[int, int, int]] = {}

    def take(self, frame: Frame) -> None:
        """Does what a frame asks for. Raises ValueError for one that makes no sense."""
        core = self._core
        match frame:
            case [Kind.FEED, home, data]:
                self._feed(home, data)
            case [Kind.RESERVE, home, _, poll]:
                core.reserve(self._proxy(home), read_clocks().mono if poll else NEVER)
            case [Kind.HEAD, home, token]:
                self._send([Kind.HEAD_IS, home, token, *core.head(self._proxy(home))])
            case [Kind.CLAIM, home, token, pri, job]:
                if not core.claim(self._proxy(home), pri, job):
                    self._send([Kind.LOST, home, token])
            case [Kind.WAIT, home, token]:
                core.claim_wait(self._proxy(home), token, NEVER)
            case [Kind.TAKE, home, token]:
                if not core.claim_take(self._proxy(home), token):
                    self._send([Kind.LOST, home, token])
            case [Kind.CANCEL, home, token]:
                stopped = core.claim_cancel(self._proxy(home), token)
                self._send([Kind.CANCELLED, home, token, stopped])
            case [Kind.CLOSE, home]:
                self._end(home)
            case [Kind.HOLDS, home]:
                held = core.holds(self._proxies[home]) if home in self._proxies else 0
                self._send([Kind.HOLDS_IS, home, held, self._has_room()])
            case [Kind.COUNT, tube, users, watchers, number]:
                self._count(tube, users, watchers, number)
            case [Kind.TUBES, request]:
                self._send([Kind.TUBES_ARE, request, core.tubes()])
            case _:
                raise ValueError(f"worker {self._peer} sent an unknown frame: {frame!r}")

    def _proxy(self, home: int) -> int:
        proxy = self._proxies.get(home)
        if proxy is None:
            proxy = self._proxies[home] = self._core.open_proxy(self._peer)
            self._homes[proxy] = home
        return proxy

    def _feed(self, home: int, data: bytes) -> None:
        # One that has ended has failed, and the home is told so by `ended`.
        with contextlib.suppress(errors.SessionEndedError):
            self._core.feed(self._proxy(home), data)

    def _end(self, home: int) -> None:
        proxy = self._proxies.pop(home, None)
        if proxy is not None:
            del self._homes[proxy]
            self._core.end(proxy)

    def _count(self, tube: bytes, users: int, watchers: int, number: int) -> None:
        before = self._counts.pop(tube, (0, 0, 0))
        if users or watchers:
            self._counts[tube] = users, watchers, number
        self._core.count_tube(tube, users - before[0], watchers - before[1], number)

    # --- what the core says of a proxy ----------------------------------------------------------

    def says(self, proxy: int, data: bytes) -> None:
        """Bytes for the client."""
        home = self._homes.get(proxy)
        if home is not None:
            for piece in pieces(data):
                self._send([Kind.OUTPUT, home, piece])

    def waited(self, proxy: int, token: int, outcome: Outcome) -> bool:
        """A wait has ended; False if it is no proxy of this peer."""
        home = self._homes.get(proxy)
        if home is not None:
            self._send([Kind.WAITED, home, token, outcome])
        return home is not None

    def ended(self, proxy: int) -> None:
        """It has failed and is no more."""
        home = self._homes.pop(proxy, None)
        if home is not None:
            del self._proxies[home]
            self._send([Kind.ENDED, home])

    def close(self) -> None:
        """The peer has gone: gives back what its connections held, watched and used."""
        for proxy in self._homes:
            self._core.end(proxy)
        for tube, (users, watchers, number) in self._counts.items():
            self._core.count_tube(tube, -users, -watchers, number)
        self._homes.clear()
        self._proxies.clear()
        self._counts.clear()
