"""The requests of the control socket, one method each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from beanstalkd_py import errors
from beanstalkd_py.control.messages import Message
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.step_results import FREE_STATES, CompactStep, TruncateStep
from beanstalkd_py.plural import counted
from beanstalkd_py.server.archiver.archiver_supervisor import HistoryStatus
from beanstalkd_py.server.control.compaction import compact
from beanstalkd_py.server.control.truncation import truncate
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.option_changes import Changes
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.stats.connection_list import ConnectionPage, all_connections
from beanstalkd_py.server.stats.tube_stats import TubeStatsPage, packed_pages
from beanstalkd_py.server.stats.worker_stats import WorkerStatus, worker_row

Answer = Generator[Any, None, Any]

LEAST_RATIO = 1.0
MOST_RATIO = 100.0
"""Of file bytes to live bytes, in a compaction."""


class Worker(Protocol):
    """One worker. The requests raise ControlError while it does not serve."""

    index: int

    def status(self, now_mono: float) -> WorkerStatus: ...

    def compact(self, per_cent: int, last: int) -> CompactStep: ...

    def truncate(
        self, tube: bytes, states: Sequence[str], most: int, generation: int
    ) -> TruncateStep: ...

    def connections(self, first: int) -> ConnectionPage: ...

    def tube_stats(self, first: int) -> TubeStatsPage: ...


class Server(Protocol):
    """The parent."""

    def reload(self) -> Changes:
        """Read the options again. Raises UsageError."""

    def report_status(self) -> None:
        """Send the status to the service manager."""


class AdminCommands:
    """Executes the requests for one server. `history` returns the archiver's progress."""

    def __init__(
        self,
        workers: Sequence[Worker],
        shared: SharedMemory,
        server: Server,
        colocate: bytes | None = None,
        history: Callable[[], HistoryStatus] | None = None,
    ) -> None:
        self._workers = workers
        self._colocate = colocate
        self._shared = shared
        self._server = server
        self._history = history
        self._compacting = False

    def handlers(self) -> dict[str, Callable[[Message], Answer]]:
        """Return the handlers by request name."""
        return {
            "workers": self._list_workers,
            "drain": self._drain,
            "reload": self._reload,
            "compact": self._compact,
            "conns": self._list_connections,
            "truncate": self._truncate,
            "tubes": self._list_tubes,
            "history": self._history_status,
        }

    def _list_workers(self, _: Message) -> Answer:
        """Answer with a part per worker: see worker_row."""
        now_mono = time.monotonic()
        for worker in self._workers:
            yield worker_row(worker.status(now_mono), self._shared)

    def _drain(self, request: Message) -> Answer:
        """Set or only report draining: {"draining": bool}."""
        match request.get("on"):
            case bool(refused):
                if refused != self._shared.draining:
                    LOGGER.info("draining: puts are %s", "refused" if refused else "accepted again")
                self._shared.draining = refused
                self._server.report_status()
            case None:
                pass
            case other:
                raise errors.ControlError(f"drain: 'on' is {other!r}; give true or false")
        yield from ()
        return {"draining": self._shared.draining}

    def _reload(self, _: Message) -> Answer:
        """Read the options again: {"applied": {name: value}, "waiting": {name: value}}."""
        changes = self._server.reload()
        yield from ()
        return {"applied": changes.applied, "waiting": changes.waiting}

    def _compact(self, request: Message) -> Answer:
        """Compact the binlogs of all workers one by one: {"freed-bytes": bytes}."""
        match request.get("ratio"):
            case bool() as other:
                raise errors.ControlError(f"compact: ratio is {other!r}; give a number")
            case float() | int() as ratio if LEAST_RATIO <= ratio <= MOST_RATIO:
                per_cent = round(ratio * 100)
            case other:
                raise errors.ControlError(
                    f"compact: ratio is {other!r}; give {LEAST_RATIO} to {MOST_RATIO}"
                )
        if self._compacting:
            raise errors.ControlError("compact: another compaction is running; try again later")
        freed = 0
        self._compacting = True
        try:
            for worker in self._workers:
                freed += yield from compact(worker.index, per_cent, worker.compact)
        finally:
            self._compacting = False
        LOGGER.info("compacted: %s freed", counted(freed, "byte"))
        return {"freed-bytes": freed}

    def _list_connections(self, _: Message) -> Answer:
        """Answer with a part per connection that sent data, then {"silent": number of others}."""
        yield from all_connections([worker.connections for worker in self._serving()])
        return {"silent": int(self._shared.parent.connections)}

    def _truncate(self, request: Message) -> Answer:
        """Delete a tube's jobs in some states: {"deleted": jobs}, when the deletion is on disk."""
        match request:
            case {"tube": str(tube), "states": [_, *_] as states} if all(map(_is_free, states)):
                name = tube.encode()
            case _:
                known = ", ".join(FREE_STATES)
                raise errors.ControlError(f"truncate: give a tube and states of {known}")
        owner = self._workers[shard_of(name, len(self._workers), self._colocate)]
        done = yield from truncate(name, states, owner.truncate)
        LOGGER.info("truncated tube %s: %s deleted", tube, counted(done["deleted"]))
        return done

    def _list_tubes(self, _: Message) -> Answer:
        """Answer with packed parts (control.tube_stats), then {"missing": [worker, ...]}."""
        serving = self._serving()
        yield from packed_pages([worker.tube_stats for worker in serving])
        return {"missing": [worker.index for worker in self._workers if worker not in serving]}

    def _history_status(self, _: Message) -> Answer:
        if self._history is None:
            raise errors.ControlError("no history; start the server with serve --history DIR")
        yield from ()
        return {name.replace("_", "-"): value for name, value in asdict(self._history()).items()}

    def _serving(self) -> list[Worker]:
        now_mono = time.monotonic()
        return [one for one in self._workers if one.status(now_mono).state == "serving"]


def _is_free(state: object) -> bool:
    return isinstance(state, str) and state in FREE_STATES
