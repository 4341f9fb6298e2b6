"""The part of a shard: what the homes of one other worker ask of their proxies here.

Frames come in and become calls of the core; the answers go back. The core owns the proxies, feeds
them and relays their replies. Must not know what the home does with an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from beanstalkd_py.core.clocks import NEVER, read_clocks
from beanstalkd_py.core.core import Core
from beanstalkd_py.server.worker.frames import Frame, Kind


class PeerRequests:
    """The proxies for connections of worker `peer`; `send` says a frame to it.

    `has_room` says whether this worker can take on one more connection.
    """

    def __init__(
        self, core: Core, peer: int, send: Callable[[Frame], None], has_room: Callable[[], bool]
    ) -> None:
        self._core = core
        self._has_room = has_room
        self._peer = peer
        self._send = send
        self._undecided: dict[int, Frame] = {}

    def take(self, frame: Frame) -> None:
        """Does what a frame asks for. Raises ValueError for one that makes no sense."""
        core = self._core
        match frame:
            case [Kind.RESERVE | Kind.CLAIM, _, _, _] | [Kind.HEAD, _, _]:
                self._answer(frame, decided=False)
            case [Kind.WAIT, home, token]:
                core.claim_wait(self._proxy(home), token, NEVER)
            case [Kind.TAKE, home, token]:
                if not core.claim_take(self._proxy(home), token):
                    self._send([Kind.LOST, home, token])
            case [Kind.CANCEL, home, token]:
                stopped = core.claim_cancel(self._proxy(home), token)
                doubtful = self._undecided.pop(self._proxy(home), None) is not None
                self._send([Kind.CANCELLED, home, token, stopped or doubtful])
            case [Kind.HOLDS, home]:
                self._send([Kind.HOLDS_IS, home, core.holds(self._proxy(home)), self._has_room()])
            case [Kind.TUBES, request]:
                self._send([Kind.TUBES_ARE, request, core.tubes()])
            case _:
                raise ValueError(f"worker {self._peer} sent an unknown frame: {frame!r}")

    def _answer(self, frame: Frame, decided: bool) -> None:
        """What is in doubt is answered when the core says that it is decided."""
        core, proxy = self._core, self._proxy(frame[1])
        match frame:
            case [Kind.RESERVE, _, _, poll]:
                until = read_clocks().mono if poll else NEVER
                if not core.reserve(proxy, until, decided):
                    self._undecided[proxy] = frame
            case [Kind.CLAIM, home, token, pri]:
                claimed = core.claim(proxy, pri, decided)
                if claimed is None:
                    self._undecided[proxy] = frame
                elif not claimed:
                    self._send([Kind.LOST, home, token])
            case [Kind.HEAD, home, token]:
                head = core.head(proxy, decided)
                if head is None:
                    self._undecided[proxy] = frame
                else:
                    self._send([Kind.HEAD_IS, home, token, *head])

    def _proxy(self, home: int) -> int:
        return self._core.proxy(self._peer, home)

    def claims_decided(self, proxy: int) -> None:
        """What it was asked can be answered now."""
        frame = self._undecided.pop(proxy, None)
        if frame is not None:
            self._answer(frame, decided=True)

    def ended(self, proxy: int) -> None:
        """It waits for nothing any more."""
        self._undecided.pop(proxy, None)
