"""What the server does for its administrator: the requests of the control socket, one method each.

Must not know how requests and answers travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from beanstalkd_py import errors
from beanstalkd_py.control.messages import Message
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.step_results import FREE_STATES
from beanstalkd_py.plural import counted
from beanstalkd_py.server.control.compaction import compact
from beanstalkd_py.server.control.truncation import truncate
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.parent.reload import Changes
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.stats.connection_list import all_connections
from beanstalkd_py.server.stats.tube_stats import packed_pages
from beanstalkd_py.server.stats.worker_stats import WorkerStatus, worker_row

Answer = Generator[Any, None, Any]

LEAST_RATIO = 1.0
MOST_RATIO = 100.0
"""Of file bytes to live bytes, in a compaction."""


class Worker(Protocol):
    """The place of one worker, as far as it is shown; see WorkerStatus."""

    index: int
    restarts: int
    since_mono: float

    @property
    def state(self) -> str:
        """What it is doing."""

    @property
    def pid(self) -> int:
        """0 while there is no process."""

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Asks the process. Raises ControlError."""


class Server(Protocol):
    """What the requests are about."""

    def reload(self) -> Changes:
        """Reads the options again. Raises UsageError."""

    def tell_status(self) -> None:
        """Says what the server does from now on."""


class AdminCommands:
    """Answers for one server."""

    def __init__(
        self,
        places: Sequence[Worker],
        shared: SharedMemory,
        server: Server,
        colocate: bytes | None = None,
        history: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """`colocate` ends the part of a tube's name that decides which place has it.

        `history` tells how far the archiver is; None: there is none.
        """
        self._places = places
        self._colocate = colocate
        self._shared = shared
        self._server = server
        self._history = history
        self._compacting = False

    def requests(self) -> dict[str, Callable[[Message], Answer]]:
        """Every request by its name."""
        return {
            "workers": self._workers,
            "drain": self._drain,
            "reload": self._reload,
            "compact": self._compact,
            "conns": self._conns,
            "truncate": self._truncate,
            "tubes": self._tubes,
            "history": self._tell_history,
        }

    def _workers(self, _: Message) -> Answer:
        """A part for each worker, in order: see worker_row."""
        now_mono = time.monotonic()
        for kept in self._places:
            since_s = max(0.0, now_mono - kept.since_mono)
            place = WorkerStatus(kept.index, kept.state, since_s, kept.pid, kept.restarts)
            yield worker_row(place, self._shared)

    def _drain(self, request: Message) -> Answer:
        """Refuses puts from now on, or takes them again, or only says which: {"draining": bool}."""
        match request.get("on"):
            case bool(refused):
                if refused != self._shared.draining:
                    LOGGER.info("draining: puts are %s", "refused" if refused else "taken again")
                self._shared.draining = refused
                self._server.tell_status()
            case None:
                pass
            case other:
                raise errors.ControlError(f"drain: {other!r} is neither true nor false")
        yield from ()
        return {"draining": self._shared.draining}

    def _reload(self, _: Message) -> Answer:
        """Reads the options again: {"applied": {name: value}, "waiting": {name: value}}."""
        changes = self._server.reload()
        yield from ()
        return {"applied": changes.applied, "waiting": changes.waiting}

    def _compact(self, request: Message) -> Answer:
        """Compacts one worker's binlog after the other; see compaction.compact."""
        match request.get("ratio"):
            case bool() as other:
                raise errors.ControlError(f"compact: the ratio is {other!r}; give a number")
            case float() | int() as ratio if LEAST_RATIO <= ratio <= MOST_RATIO:
                per_cent = round(ratio * 100)
            case other:
                raise errors.ControlError(
                    f"compact: the ratio is {other!r}; give {LEAST_RATIO} to {MOST_RATIO}"
                )
        if self._compacting:
            raise errors.ControlError("compact: a compaction is under way already")
        freed = 0
        self._compacting = True
        try:
            for kept in self._places:
                freed += yield from compact(kept.index, per_cent, kept.ask)
        finally:
            self._compacting = False
        LOGGER.info("compacted: %s freed", counted(freed, "byte"))
        return {"freed-bytes": freed}

    def _conns(self, _: Message) -> Answer:
        """A part for each connection that has said something, then {"silent": all others}."""
        yield from all_connections(self._serving(), lambda worker: self._places[worker].ask)
        return {"silent": int(self._shared.parent.connections)}

    def _truncate(self, request: Message) -> Answer:
        """Deletes what no client has of a tube, in some states; see truncation.truncate.

        {"deleted": jobs}, when all of it is on disk. The binlog says of these jobs how they ended.
        """
        match request:
            case {"tube": str(tube), "states": [_, *_] as states} if all(map(_is_free, states)):
                name = tube.encode()
            case _:
                known = ", ".join(FREE_STATES)
                raise errors.ControlError(f"truncate: give a tube and states, some of {known}")
        owner = shard_of(name, len(self._places), self._colocate)
        done = yield from truncate(name, states, self._places[owner].ask)
        LOGGER.info("truncated tube %s: %s deleted", tube, counted(done["deleted"]))
        return done

    def _tubes(self, _: Message) -> Answer:
        """Parts with some tubes each, for control.tubes.rows, then {"missing": [worker, ...]}.

        The tubes of workers that are missing, because they do not serve now, are in no part.
        """
        serving = self._serving()
        yield from packed_pages(serving, lambda worker: self._places[worker].ask)
        return {"missing": [kept.index for kept in self._places if kept.index not in serving]}

    def _tell_history(self, _: Message) -> Answer:
        """How far the archiver is: see ArchiverSupervisor.status."""
        if self._history is None:
            raise errors.ControlError("this server keeps no history (serve --history DIR)")
        yield from ()
        return {name.replace("_", "-"): value for name, value in self._history().items()}

    def _serving(self) -> list[int]:
        return [kept.index for kept in self._places if kept.state == "serving"]


def _is_free(state: object) -> bool:
    return isinstance(state, str) and state in FREE_STATES
