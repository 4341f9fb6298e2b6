"""Operations that change something on a server, each with a dry run, progress and audit entries.

O1  An operation is in the audit log before it changes anything, and its outcome after it.
O2  A dry run changes nothing, and counts what the operation would change at this moment, or at
    least how much.
O3  A stop takes effect between two batches; what was done until then stays done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import gevent

from beanstalkd_py import errors
from beanstalkd_py.console.audit_log import AuditEntry, AuditLog
from beanstalkd_py.console.operations.kinds import KINDS
from beanstalkd_py.console.operations.operation import (
    Arguments,
    Operation,
    Plan,
    Progress,
    recorded,
)
from beanstalkd_py.console.target import Target

LOGGER = logging.getLogger("beanstalkd_py")
KEPT = 200
MOST_RUNNING = 20


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    address: str


def plan(kind: str, target: Target, arguments: Arguments) -> Plan:
    """Return what an operation would change. Raises BeanstalkdError, and changes nothing."""
    if unknown := arguments.keys() - KINDS[kind].arguments:
        raise errors.ToolUsageError(f"{kind} has no argument {min(unknown)!r}")
    return KINDS[kind].plan(target, arguments)


class Operations:
    """The operations of one server. `changed` is called when one makes progress."""

    def __init__(
        self, target: Target, audit: AuditLog, changed: Callable[[Operation], None]
    ) -> None:
        self._target = target
        self._audit = audit
        self._changed = changed
        self._all: list[Operation] = []
        self._running: dict[int, Progress] = {}
        self._greenlets: set[gevent.Greenlet[..., None]] = set()
        self._last_id = 0

    def list(self, most: int = KEPT) -> list[Operation]:
        """Return operations, newest first: the last ones, and all that run."""
        first = max(0, len(self._all) - most)
        running = [one for one in self._all[:first] if one.ended is None]
        return [*running, *self._all[first:]][::-1]

    def begin(self, kind: str, arguments: Arguments, caller: Caller) -> Operation:
        """Start an operation. Raises BeanstalkdError if its arguments are invalid, OSError."""
        found = plan(kind, self._target, arguments)  # others may begin meanwhile
        if len(self._running) >= MOST_RUNNING:
            raise errors.ToolUsageError(f"{MOST_RUNNING} operations run; wait, or stop one")
        self._last_id += 1
        operation = Operation(
            *(self._last_id, kind, self._target.name, caller.user, recorded(arguments)),
            *(time.time(), found.count),
            text=found.text,
            can_stop=KINDS[kind].can_stop,
        )
        self._record(operation, caller, "begun", before=found.text)
        self._all.append(operation)
        self._all = self.list()[::-1]
        progress = self._running[operation.id] = Progress(operation, self._changed)
        greenlet = gevent.spawn(self._run, progress, arguments, caller)
        self._greenlets.add(greenlet)
        greenlet.link(self._greenlets.discard)
        greenlet.join(timeout=0.2)  # most end at once
        if operation.ended is None and not operation.done:
            self._changed(operation)  # before its first progress, which may take long
        return operation

    def stop(self, number: int, caller: Caller) -> Operation:
        """Ask a running operation to end. Raises ToolUsageError if there is none, OSError."""
        if number not in self._running:
            raise errors.ToolUsageError(f"operation {number} does not run")
        progress = self._running[number]
        operation = progress.operation
        self._audit.add(
            AuditEntry(
                *(caller.user, caller.address, operation.target, "stop"),
                {"operation": number, "kind": operation.kind},
                before=operation.text,
            )
        )
        progress.is_stopped = True
        return operation

    def stop_all(self, limit_s: float) -> None:
        """Ask all operations to end, and wait for their outcomes in the audit log."""
        for progress in self._running.values():
            progress.is_stopped = True
        gevent.joinall(list(self._greenlets), timeout=limit_s)

    def _run(self, progress: Progress, arguments: Arguments, caller: Caller) -> None:
        operation = progress.operation
        try:
            operation.text = KINDS[operation.kind].run(self._target, arguments, progress)
        except (errors.BeanstalkdError, OSError) as error:
            operation.error = str(error)
        except Exception:
            LOGGER.exception("console: operation %d, %s, failed", operation.id, operation.kind)
            operation.error = "the console has a fault; its log has the details"
        if operation.error and operation.done:
            operation.text += f"; {operation.done} done before the error"
        operation.ended = time.time()
        del self._running[operation.id]
        self._changed(operation)
        outcome = operation.error or ("stopped" if progress.is_stopped else "done")
        try:
            self._record(operation, caller, outcome, after=operation.text)
        except OSError as error:
            LOGGER.error("console: cannot write the audit log: %s", error)

    def _record(
        self, operation: Operation, caller: Caller, outcome: str, before: str = "", after: str = ""
    ) -> None:
        self._audit.add(
            AuditEntry(
                *(caller.user, caller.address, operation.target, operation.kind),
                *(operation.arguments, before, after, outcome),
            )
        )
