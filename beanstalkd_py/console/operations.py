"""Operations that change something on a server, each with a dry run, progress and audit entries.

O1  An operation is in the audit log before it changes anything, and its outcome after it.
O2  A dry run changes nothing, and counts what the operation would change at this moment.
O3  A stop takes effect between two batches; what was done until then stays done.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import gevent

from beanstalkd_py import errors
from beanstalkd_py.admin import jobs as job_commands
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.admin.move import MoveResult, move
from beanstalkd_py.admin.rate_limiter import RateLimiter
from beanstalkd_py.admin.statistics import (
    BURIED,
    DELAYED,
    FREE_STATES,
    READY,
    features_of,
    job_stats,
    tube_stats,
)
from beanstalkd_py.admin.truncate import TruncateResult, truncate
from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.audit_log import AuditEntry, AuditLog
from beanstalkd_py.console.operation import (
    U32_MAX,
    Arguments,
    Kind,
    Operation,
    Plan,
    Planner,
    Progress,
    Runner,
    ids_of,
    number_of,
    rate_of,
    states_of,
    tube_of,
)
from beanstalkd_py.console.replay_operation import plan_replay, run_replay
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import JobFilter, all_jobs, dead_letters
from beanstalkd_py.plural import counted
from beanstalkd_py.server.policy_settings import parse_policy
from beanstalkd_py.server.tube_policies import policy_values

LOGGER = logging.getLogger("beanstalkd_py")
KEPT = 200
MOST_RUNNING = 20
BATCH_JOBS = 100
TO_BURY = (READY, DELAYED)
PAUSE_MAX_S = 365 * 24 * 3600
COMPACT_RATIO = 1.1
"""Bytes of the files for each live byte that end a compaction."""


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

    def list(self) -> list[Operation]:
        """Return operations, newest first."""
        return self._all[::-1]

    def begin(self, kind: str, arguments: Arguments, caller: Caller) -> Operation:
        """Start an operation. Raises BeanstalkdError if its arguments are invalid, OSError."""
        if len(self._running) >= MOST_RUNNING:
            raise errors.ToolUsageError(f"{MOST_RUNNING} operations run; wait, or stop one")
        found = plan(kind, self._target, arguments)
        self._last_id += 1
        operation = Operation(
            *(self._last_id, kind, self._target.name, caller.user, dict(arguments)),
            *(time.time(), found.count),
            text=found.text,
            can_stop=KINDS[kind].can_stop,
        )
        self._record(operation, caller, "begun", before=found.text)
        self._all.append(operation)
        del self._all[:-KEPT]
        progress = self._running[operation.id] = Progress(operation, self._changed)
        greenlet = gevent.spawn(self._run, progress, caller)
        self._greenlets.add(greenlet)
        greenlet.link(self._greenlets.discard)
        greenlet.join(timeout=0.2)  # most end at once
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

    def _run(self, progress: Progress, caller: Caller) -> None:
        operation = progress.operation
        try:
            operation.text = KINDS[operation.kind].run(self._target, operation.arguments, progress)
        except (errors.BeanstalkdError, OSError) as error:
            operation.error = str(error)
        except Exception:
            LOGGER.exception("console: operation %d, %s, failed", operation.id, operation.kind)
            operation.error = "the console has a fault; its log has the details"
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


# --- jobs by id ----------------------------------------------------------------------------------


def _plan_ids(verb: str, states: Sequence[str]) -> Planner:
    def plan(target: Target, arguments: Arguments) -> Plan:
        with target.connection() as connection:
            found = job_stats(connection, ids_of(arguments))
        count = sum(job is not None and job.state in states for job in found)
        return Plan(count, f"{verb} {counted(count, 'job')}")

    return plan


def _run_ids(
    command: Callable[[Connection, Sequence[int]], list[str]], word: str, text: str
) -> Runner:
    def run(target: Target, arguments: Arguments, progress: Progress) -> str:
        ids, limiter = ids_of(arguments), RateLimiter(rate_of(arguments), BATCH_JOBS)
        changed = _in_batches(target, ids, limiter, progress, command, word)
        return f"{text} {counted(changed, 'job')}"

    return run


def _in_batches(
    target: Target,
    ids: Sequence[int],
    limiter: RateLimiter,
    progress: Progress,
    command: Callable[[Connection, Sequence[int]], list[str]],
    word: str,
) -> int:
    changed, begin = 0, 0
    with target.connection() as connection:
        while begin < len(ids) and limiter.wait(connection, lambda: progress.is_stopped):
            batch = ids[begin : begin + limiter.batch_jobs]
            begin += len(batch)
            limiter.record(len(batch), time.monotonic())
            done = command(connection, batch).count(word)
            changed += done
            progress.add(done)
            if progress.is_stopped:
                break
            gevent.sleep(0)
    return changed


def _bury(connection: Connection, ids: Sequence[int]) -> list[str]:
    found = job_stats(connection, ids)
    return job_commands.bury(connection, [job.id for job in found if job and job.state in TO_BURY])


# --- tubes ---------------------------------------------------------------------------------------


def _plan_kick(target: Target, arguments: Arguments) -> Plan:
    if "ids" in arguments:
        return _plan_ids("Make ready:", (BURIED, DELAYED))(target, arguments)
    tube = tube_of(arguments)
    bound = number_of(arguments, "count", 1, U32_MAX, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    state = BURIED if stats.buried else DELAYED
    count = min(bound, stats.buried or stats.delayed)
    return Plan(count, f"Make {counted(count, f'{state} job')} of {tube} ready")


def _run_kick(target: Target, arguments: Arguments, progress: Progress) -> str:
    if "ids" in arguments:
        return _run_ids(job_commands.kick, "KICKED", "Made ready:")(target, arguments, progress)
    bound = number_of(arguments, "count", 1, U32_MAX, None)
    with target.connection() as connection:
        count = job_commands.kick_first(connection, tube_of(arguments), bound)
    progress.add(count)
    return f"Made {counted(count, 'job')} of {tube_of(arguments)} ready"


def _buried(target: Target, arguments: Arguments) -> list[int]:
    """Return buried jobs of a tube: those of a shape, those of `ids`, or all."""
    tube, shape = tube_of(arguments), arguments.get("shape")
    if isinstance(shape, str):
        groups = dead_letters(target, tube, shape).groups
        return next((group.ids for group in groups if group.shape == shape), [])
    with target.connection() as connection:
        if arguments.get("ids") is None:
            return [job.id for job in all_jobs(connection, JobFilter(tube, BURIED))]
        found = job_stats(connection, ids_of(arguments))
        return [job.id for job in found if job and (job.tube, job.state) == (tube, BURIED)]


def _plan_delete(target: Target, arguments: Arguments) -> Plan:
    if "shape" not in arguments:
        return _plan_ids("Delete", FREE_STATES)(target, arguments)
    count = len(_buried(target, arguments))
    return Plan(count, f"Delete {counted(count, 'buried job')} of {tube_of(arguments)}")


def _run_delete(target: Target, arguments: Arguments, progress: Progress) -> str:
    by_shape = "shape" in arguments
    ids = _buried(target, arguments) if by_shape else ids_of(arguments)
    limiter = RateLimiter(rate_of(arguments), BATCH_JOBS)
    count = _in_batches(target, ids, limiter, progress, job_commands.delete, "DELETED")
    return f"Deleted {counted(count, 'job')}"


def _plan_redrive(target: Target, arguments: Arguments) -> Plan:
    rate, count = rate_of(arguments), len(_buried(target, arguments))
    speed = f" at {rate:g} per second" if rate else ""
    return Plan(count, f"Make {counted(count, 'buried job')} of {tube_of(arguments)} ready{speed}")


def _run_redrive(target: Target, arguments: Arguments, progress: Progress) -> str:
    ids, limiter = _buried(target, arguments), RateLimiter(rate_of(arguments), BATCH_JOBS)
    count = _in_batches(target, ids, limiter, progress, job_commands.kick, "KICKED")
    return f"Made {counted(count, 'buried job')} of {tube_of(arguments)} ready"


def _plan_pause(target: Target, arguments: Arguments) -> Plan:
    tube = tube_of(arguments)
    seconds = number_of(arguments, "seconds", 0, PAUSE_MAX_S, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    if seconds == 0:
        return Plan(1, f"End the pause of {tube}, which has {stats.paused_s} s left")
    return Plan(1, f"Pause {tube} for {seconds} s: {counted(stats.ready, 'ready job')} wait")


def _run_pause(target: Target, arguments: Arguments, progress: Progress) -> str:
    seconds = number_of(arguments, "seconds", 0, PAUSE_MAX_S, None)
    with target.connection() as connection:
        connection.client.pause_tube(tube_of(arguments), seconds)
    progress.add(1)
    return f"Paused {tube_of(arguments)} for {seconds} s"


def _put_values(arguments: Arguments) -> tuple[bytes, dict[str, int]]:
    body = arguments.get("body")
    if not isinstance(body, str):
        raise errors.ToolUsageError("body: give a text")
    numbers = {
        "pri": number_of(arguments, "pri", 0, U32_MAX, 65536),
        "delay_s": number_of(arguments, "delay", 0, U32_MAX, 0),
        "ttr_s": number_of(arguments, "ttr", 1, U32_MAX, 60),
    }
    return body.encode(), numbers


def _plan_put(target: Target, arguments: Arguments) -> Plan:
    body, _ = _put_values(arguments)
    return Plan(1, f"Put a job of {counted(len(body), 'byte')} into {tube_of(arguments)}")


def _run_put(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, (body, numbers) = tube_of(arguments), _put_values(arguments)
    with target.connection() as connection:
        job = job_commands.put(connection, tube, body, **numbers)
    progress.add(1)
    return f"Put job {job} into {tube}"


def _plan_move(target: Target, arguments: Arguments) -> Plan:
    source, to, states = tube_of(arguments), tube_of(arguments, "to"), states_of(arguments)
    if source == to:
        raise errors.ToolUsageError("to: give another tube")
    rate_of(arguments)
    with target.connection() as connection:
        count = tube_stats(connection, source).count(states)
    return Plan(count, f"Move {counted(count, 'job')} from {source} to {to}")


def _run_move(target: Target, arguments: Arguments, progress: Progress) -> str:
    source, to = tube_of(arguments), tube_of(arguments, "to")
    result = MoveResult()

    @contextlib.contextmanager
    def counting() -> Iterator[None]:
        before = result.moved
        yield
        progress.add(result.moved - before)

    with target.connection() as connection:
        move(
            *(connection, source, to, states_of(arguments), None, rate_of(arguments)),
            result=result,
            deferred=counting,
            stopped=lambda: progress.is_stopped,
        )
    return f"Moved {counted(result.moved, 'job')} from {source} to {to}"


def _plan_truncate(target: Target, arguments: Arguments) -> Plan:
    tube = tube_of(arguments)
    with target.connection() as connection:
        count = tube_stats(connection, tube).count(FREE_STATES)
    return Plan(count, f"Delete {counted(count, 'job')} of {tube}; reserved jobs stay")


def _run_truncate(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, result = tube_of(arguments), TruncateResult()
    with target.connection() as connection:
        if "truncate" in features_of(connection):
            connection.extend_timeout(None)
            reply = connection.execute(b"truncate " + tube.encode())
            result.deleted = int(reply.expect(b"TRUNCATED").values[0])
        else:
            truncate(connection, tube, FREE_STATES, result)
    progress.add(result.deleted)
    return f"Deleted {counted(result.deleted, 'job')} of {tube}"


# --- the server ----------------------------------------------------------------------------------


def _plan_drain(target: Target, arguments: Arguments) -> Plan:
    on = arguments.get("on")
    if not isinstance(on, bool):
        raise errors.ToolUsageError("on: give true or false")
    with target.control_client() as control:
        is_draining = control.ask("drain")["draining"]
    now = "refused" if is_draining else "accepted"
    return Plan(1, f"{'Refuse' if on else 'Accept'} new jobs, which are {now} now")


def _run_drain(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        answer = control.ask("drain", on=arguments.get("on"))
    progress.add(1)
    return "New jobs are refused" if answer["draining"] else "New jobs are accepted"


def _plan_request(text: str) -> Planner:
    def plan(target: Target, arguments: Arguments) -> Plan:
        with target.control_client():
            return Plan(1, text)

    return plan


def _run_compact(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        for _ in control.parts("compact", ratio=COMPACT_RATIO):
            gevent.sleep(0)
    progress.add(1)
    return "Compacted the binlogs"


def _run_reload(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        answer = control.ask("reload")
    progress.add(1)
    applied, waiting = (", ".join(answer[name]) or "none" for name in ("applied", "waiting"))
    return f"Read the options again; changed: {applied}; after a restart: {waiting}"


def _text(arguments: Arguments, name: str) -> str:
    text = arguments.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= 1000:
        raise errors.ToolUsageError(f"{name}: give a text")
    return text


def _policy(arguments: Arguments) -> Mapping[str, object]:
    policy = arguments.get("policy")
    if not isinstance(policy, dict) or not isinstance(policy.get("tube"), str):
        raise errors.ToolUsageError("policy: give its settings, and the pattern as tube")
    settings = {name: value for name, value in policy.items() if name != "tube"}
    try:
        return policy_values(parse_policy(policy["tube"], settings))
    except ValueError as error:
        raise errors.ToolUsageError(f"policy: {error}") from error


def _online_policy(target: Target, pattern: str) -> str | None:
    """Return the settings of an online policy as a text; None if there is none."""
    with target.control_client() as control:
        for row in control.parts("policies"):
            if (row["pattern"], row["from"]) == (pattern, "online"):
                names = row.keys() - {"pattern", "from"}
                return ", ".join(f"{name} {row[name]}" for name in sorted(names)) or "no limits"
    return None


def _plan_policy_set(target: Target, arguments: Arguments) -> Plan:
    pattern = str(_policy(arguments)["pattern"])
    before = _online_policy(target, pattern)
    return Plan(1, f"Set the policy of {pattern}" + (f", now {before}" if before else ""))


def _run_policy_set(target: Target, arguments: Arguments, progress: Progress) -> str:
    policy = _policy(arguments)
    with target.control_client() as control:
        control.ask("policy-set", policy=policy)
    progress.add(1)
    return f"Set the policy of {policy['pattern']}"


def _plan_policy_unset(target: Target, arguments: Arguments) -> Plan:
    pattern = _text(arguments, "pattern")
    before = _online_policy(target, pattern)
    if before is None:
        raise errors.RefusedError("NOT_FOUND", f"no policy {pattern} was set online")
    return Plan(1, f"Unset the online policy of {pattern}, now {before}")


def _run_policy_unset(target: Target, arguments: Arguments, progress: Progress) -> str:
    pattern = _text(arguments, "pattern")
    with target.control_client() as control:
        control.ask("policy-unset", pattern=pattern)
    progress.add(1)
    return f"Unset the online policy of {pattern}"


def _plan_schedule_run(target: Target, arguments: Arguments) -> Plan:
    name = _text(arguments, "name")
    with target.control_client() as control:
        if all(row["name"] != name for row in control.parts("schedules")):
            raise errors.RefusedError("NOT_FOUND", f"there is no schedule {name}")
    return Plan(1, f"Put the job of schedule {name} now")


def _run_schedule_run(target: Target, arguments: Arguments, progress: Progress) -> str:
    name = _text(arguments, "name")
    with target.control_client() as control:
        control.ask("schedule-run", name=name)
    progress.add(1)
    return f"Put the job of schedule {name}"


def _kind(names: str, plan: Planner, run: Runner, *, can_stop: bool = False) -> Kind:
    return Kind(Role.OPERATE, frozenset(names.split()), plan, run, can_stop)


def _admin_kind(names: str, plan: Planner, run: Runner) -> Kind:
    return Kind(Role.ADMIN, frozenset(names.split()), plan, run)


KINDS: Mapping[str, Kind] = {
    "kick": _kind("tube count ids", _plan_kick, _run_kick, can_stop=True),
    "delete": _kind("ids tube shape", _plan_delete, _run_delete, can_stop=True),
    "bury": _kind(
        "ids",
        _plan_ids("Bury", TO_BURY),
        _run_ids(_bury, "BURIED", "Buried"),
        can_stop=True,
    ),
    "redrive": _kind("tube ids shape rate", _plan_redrive, _run_redrive, can_stop=True),
    "replay": _kind("tube from to to_tube rate", plan_replay, run_replay, can_stop=True),
    "pause": _kind("tube seconds", _plan_pause, _run_pause),
    "put": _kind("tube body pri delay ttr", _plan_put, _run_put),
    "move": _kind("tube to states rate", _plan_move, _run_move, can_stop=True),
    "schedule-run": _kind("name", _plan_schedule_run, _run_schedule_run),
    "truncate": _admin_kind("tube", _plan_truncate, _run_truncate),
    "drain": _admin_kind("on", _plan_drain, _run_drain),
    "compact": _admin_kind("", _plan_request("Compact the binlogs"), _run_compact),
    "reload": _admin_kind("", _plan_request("Read the options again"), _run_reload),
    "policy-set": _admin_kind("policy", _plan_policy_set, _run_policy_set),
    "policy-unset": _admin_kind("pattern", _plan_policy_unset, _run_policy_unset),
}
