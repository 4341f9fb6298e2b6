"""Executes the frames of one peer on the proxies of its sessions, and sends the responses.

The core owns the proxies, feeds them and relays their replies.
"""

from __future__ import annotations

from collections.abc import Callable

from beanstalkd_py.core.clocks import NEVER, read_clocks
from beanstalkd_py.core.core import Core
from beanstalkd_py.server.worker.frames import Frame, Kind


class PeerRequests:
    """The requests of worker `peer`; `send` sends a frame to it.

    `has_capacity` returns whether this worker can adopt one more connection.
    """

    def __init__(
        self, core: Core, peer: int, send: Callable[[Frame], None], has_capacity: Callable[[], bool]
    ) -> None:
        self._core = core
        self._has_capacity = has_capacity
        self._peer = peer
        self._send = send
        self._deferred: dict[int, Frame] = {}
        """Requests that wait until pending claims are decided, by proxy."""

    def handle(self, frame: Frame) -> None:
        """Execute a frame. Raises ValueError for an unknown one."""
        core = self._core
        match frame:
            case [Kind.RESERVE | Kind.CLAIM, _, _, _] | [Kind.HEAD, _, _]:
                self._respond(frame, decided=False)
            case [Kind.WAIT, home, token]:
                core.claim_wait(self._proxy(home), token, NEVER)
            case [Kind.TAKE, home, token]:
                if not core.claim_take(self._proxy(home), token):
                    self._send([Kind.LOST, home, token])
            case [Kind.CANCEL, home, token]:
                stopped = core.claim_cancel(self._proxy(home), token)
                deferred = self._deferred.pop(self._proxy(home), None) is not None
                self._send([Kind.CANCELLED, home, token, stopped or deferred])
            case [Kind.HOLDS, home]:
                holds = core.holds(self._proxy(home))
                self._send([Kind.HOLDS_IS, home, holds, self._has_capacity()])
            case [Kind.TUBES, request]:
                self._send([Kind.TUBES_ARE, request, core.tubes()])
            case _:
                raise ValueError(f"worker {self._peer} sent an unknown frame: {frame!r}")

    def _respond(self, frame: Frame, decided: bool) -> None:
        core, proxy = self._core, self._proxy(frame[1])
        match frame:
            case [Kind.RESERVE, _, _, poll]:
                until = read_clocks().mono if poll else NEVER
                if not core.reserve(proxy, until, decided):
                    self._deferred[proxy] = frame
            case [Kind.CLAIM, home, token, pri]:
                claimed = core.claim(proxy, pri, decided)
                if claimed is None:
                    self._deferred[proxy] = frame
                elif not claimed:
                    self._send([Kind.LOST, home, token])
            case [Kind.HEAD, home, token]:
                head = core.head(proxy, decided)
                if head is None:
                    self._deferred[proxy] = frame
                else:
                    self._send([Kind.HEAD_IS, home, token, *head])

    def _proxy(self, home: int) -> int:
        return self._core.proxy(self._peer, home)

    def claims_decided(self, proxy: int) -> None:
        """Execute the request that was deferred."""
        frame = self._deferred.pop(proxy, None)
        if frame is not None:
            self._respond(frame, decided=True)

    def proxy_closed(self, proxy: int) -> None:
        self._deferred.pop(proxy, None)
