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
from dataclasses import dataclass, fields

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
    job_stats,
    tube_stats,
)
from beanstalkd_py.admin.truncate import TruncateResult, truncate
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.audit_log import AuditEntry, AuditLog
from beanstalkd_py.console.target import Target, features_of
from beanstalkd_py.console.views.jobs import JobFilter, all_jobs, dead_letters
from beanstalkd_py.plural import counted
from beanstalkd_py.server.tube_policies import policy_from

LOGGER = logging.getLogger("beanstalkd_py")
KEPT = 200
SHOWN_LENGTH = 200
"""Characters of a text, and numbers of a list, that viewers get of an argument."""
REPORT_S = 0.25
"""Least time between two reports of the progress of an operation."""
BATCH_JOBS = 100
MOST_IDS = 10_000
TO_BURY = (READY, DELAYED)
U32_MAX = 2**32 - 1
PAUSE_MAX_S = 365 * 24 * 3600
COMPACT_RATIO = 1.1
"""Bytes of the files for each live byte that end a compaction."""

Arguments = Mapping[str, object]


@dataclass(slots=True)
class Operation:
    """One that was begun. Times are seconds since 1970; `total` is None if it is not known."""

    id: int
    kind: str
    target: str
    user: str
    arguments: Arguments
    begun: float
    total: int | None
    ended: float | None = None
    done: int = 0
    error: str | None = None
    text: str = ""
    can_stop: bool = False

    def shown(self) -> dict[str, object]:
        """Return the fields for viewers; long arguments are cut off."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**values, "arguments": {name: _cut(one) for name, one in self.arguments.items()}}


def _cut(value: object) -> object:
    return value[:SHOWN_LENGTH] if isinstance(value, str | list) else value


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dry run returns: how many jobs, tubes or settings change, and a sentence."""

    count: int
    text: str


@dataclass(slots=True)
class Progress:
    """What a running operation reports, and whether a user has stopped it."""

    operation: Operation
    changed: Callable[[Operation], None]
    is_stopped: bool = False
    _reported_mono: float = 0.0

    def add(self, count: int) -> None:
        self.operation.done += count
        now_mono = time.monotonic()
        if now_mono - self._reported_mono >= REPORT_S:
            self._reported_mono = now_mono
            self.changed(self.operation)


Planner = Callable[[Target, Arguments], Plan]
Runner = Callable[[Target, Arguments, Progress], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operation: who may do it, its arguments, what it would change, how it does it."""

    role: Role
    arguments: frozenset[str]
    plan: Planner
    run: Runner
    can_stop: bool = False


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
        self._last_id = 0

    def list(self) -> list[Operation]:
        """Return operations, newest first."""
        return self._all[::-1]

    def begin(self, kind: str, arguments: Arguments, caller: Caller) -> Operation:
        """Start an operation. Raises BeanstalkdError if its arguments are invalid, OSError."""
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
        gevent.spawn(self._run, progress, caller).join(timeout=0.2)  # most end at once
        return operation

    def stop(self, number: int) -> Operation:
        """Ask a running operation to end. Raises ToolUsageError if there is none."""
        if number not in self._running:
            raise errors.ToolUsageError(f"operation {number} does not run")
        self._running[number].is_stopped = True
        return self._running[number].operation

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


# --- arguments -----------------------------------------------------------------------------------


def _tube(arguments: Arguments, name: str = "tube") -> str:
    tube = arguments.get(name)
    if not isinstance(tube, str) or not is_tube_name(tube):
        raise errors.ToolUsageError(f"{name} is {tube!r}; a tube's name has {TUBE_NAMES}")
    return tube


def _number(arguments: Arguments, name: str, least: int, most: int, default: int | None) -> int:
    value = arguments.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise errors.ToolUsageError(f"{name} is {value!r}; give a number from {least} to {most}")
    return value


def _ids(arguments: Arguments) -> list[int]:
    ids = arguments.get("ids")
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not 0 < len(ids) <= MOST_IDS:
        raise errors.ToolUsageError(f"ids: give 1 to {MOST_IDS} ids of jobs")
    if not all(type(one) is int and 0 < one < 2**64 for one in ids):
        raise errors.ToolUsageError("ids: an id is a positive number")
    return list(dict.fromkeys(ids))


def _rate(arguments: Arguments) -> float | None:
    rate = arguments.get("rate")
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6:
        raise errors.ToolUsageError(f"rate is {rate!r}; give jobs per second, or null")
    return float(rate)


def _states(arguments: Arguments) -> list[str]:
    states = arguments.get("states", list(FREE_STATES))
    if not isinstance(states, list) or not states or any(one not in FREE_STATES for one in states):
        raise errors.ToolUsageError(f"states: give some of {', '.join(FREE_STATES)}")
    return states


# --- jobs by id ----------------------------------------------------------------------------------


def _plan_ids(verb: str, states: Sequence[str]) -> Planner:
    def plan(target: Target, arguments: Arguments) -> Plan:
        with target.connection() as connection:
            found = job_stats(connection, _ids(arguments))
        count = sum(job is not None and job.state in states for job in found)
        return Plan(count, f"{verb} {counted(count, 'job')}")

    return plan


def _run_ids(
    command: Callable[[Connection, Sequence[int]], list[str]], word: str, text: str
) -> Runner:
    def run(target: Target, arguments: Arguments, progress: Progress) -> str:
        ids, limiter = _ids(arguments), RateLimiter(_rate(arguments), BATCH_JOBS)
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
    tube = _tube(arguments)
    bound = _number(arguments, "count", 1, U32_MAX, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    state = BURIED if stats.buried else DELAYED
    count = min(bound, stats.buried or stats.delayed)
    return Plan(count, f"Make {counted(count, f'{state} job')} of {tube} ready")


def _run_kick(target: Target, arguments: Arguments, progress: Progress) -> str:
    if "ids" in arguments:
        return _run_ids(job_commands.kick, "KICKED", "Made ready:")(target, arguments, progress)
    bound = _number(arguments, "count", 1, U32_MAX, None)
    with target.connection() as connection:
        count = job_commands.kick_first(connection, _tube(arguments), bound)
    progress.add(count)
    return f"Made {counted(count, 'job')} of {_tube(arguments)} ready"


def _redriven(target: Target, arguments: Arguments) -> list[int]:
    """Return the buried jobs to make ready: those of a shape, or all of the tube."""
    tube, shape = _tube(arguments), arguments.get("shape")
    if isinstance(shape, str):
        groups = dead_letters(target, tube, shape).groups
        return next((group.ids for group in groups if group.shape == shape), [])
    with target.connection() as connection:
        if arguments.get("ids") is None:
            return [job.id for job in all_jobs(connection, JobFilter(tube, BURIED))]
        found = job_stats(connection, _ids(arguments))
        return [job.id for job in found if job and (job.tube, job.state) == (tube, BURIED)]


def _plan_redrive(target: Target, arguments: Arguments) -> Plan:
    rate, count = _rate(arguments), len(_redriven(target, arguments))
    speed = f" at {rate:g} per second" if rate else ""
    return Plan(count, f"Make {counted(count, 'buried job')} of {_tube(arguments)} ready{speed}")


def _run_redrive(target: Target, arguments: Arguments, progress: Progress) -> str:
    ids, limiter = _redriven(target, arguments), RateLimiter(_rate(arguments), BATCH_JOBS)
    count = _in_batches(target, ids, limiter, progress, job_commands.kick, "KICKED")
    return f"Made {counted(count, 'buried job')} of {_tube(arguments)} ready"


def _plan_pause(target: Target, arguments: Arguments) -> Plan:
    tube = _tube(arguments)
    seconds = _number(arguments, "seconds", 0, PAUSE_MAX_S, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    if seconds == 0:
        return Plan(1, f"End the pause of {tube}, which has {stats.paused_s} s left")
    return Plan(1, f"Pause {tube} for {seconds} s: {counted(stats.ready, 'ready job')} wait")


def _run_pause(target: Target, arguments: Arguments, progress: Progress) -> str:
    seconds = _number(arguments, "seconds", 0, PAUSE_MAX_S, None)
    with target.connection() as connection:
        connection.client.pause_tube(_tube(arguments), seconds)
    progress.add(1)
    return f"Paused {_tube(arguments)} for {seconds} s"


def _put_values(arguments: Arguments) -> tuple[bytes, dict[str, int]]:
    body = arguments.get("body")
    if not isinstance(body, str):
        raise errors.ToolUsageError("body: give a text")
    numbers = {
        "pri": _number(arguments, "pri", 0, U32_MAX, 65536),
        "delay_s": _number(arguments, "delay", 0, U32_MAX, 0),
        "ttr_s": _number(arguments, "ttr", 1, U32_MAX, 60),
    }
    return body.encode(), numbers


def _plan_put(target: Target, arguments: Arguments) -> Plan:
    body, _ = _put_values(arguments)
    return Plan(1, f"Put a job of {counted(len(body), 'byte')} into {_tube(arguments)}")


def _run_put(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, (body, numbers) = _tube(arguments), _put_values(arguments)
    with target.connection() as connection:
        job = job_commands.put(connection, tube, body, **numbers)
    progress.add(1)
    return f"Put job {job} into {tube}"


def _plan_move(target: Target, arguments: Arguments) -> Plan:
    source, to, states = _tube(arguments), _tube(arguments, "to"), _states(arguments)
    if source == to:
        raise errors.ToolUsageError("to: give another tube")
    _rate(arguments)
    with target.connection() as connection:
        count = tube_stats(connection, source).count(states)
    return Plan(count, f"Move {counted(count, 'job')} from {source} to {to}")


def _run_move(target: Target, arguments: Arguments, progress: Progress) -> str:
    source, to = _tube(arguments), _tube(arguments, "to")
    result = MoveResult()

    @contextlib.contextmanager
    def counting() -> Iterator[None]:
        before = result.moved
        yield
        progress.add(result.moved - before)

    with target.connection() as connection:
        move(
            *(connection, source, to, _states(arguments), None, _rate(arguments)),
            result=result,
            deferred=counting,
            stopped=lambda: progress.is_stopped,
        )
    return f"Moved {counted(result.moved, 'job')} from {source} to {to}"


def _plan_truncate(target: Target, arguments: Arguments) -> Plan:
    tube = _tube(arguments)
    with target.connection() as connection:
        count = tube_stats(connection, tube).count(FREE_STATES)
    return Plan(count, f"Delete {counted(count, 'job')} of {tube}; reserved jobs stay")


def _run_truncate(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, result = _tube(arguments), TruncateResult()
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
    return Plan(1, f"{'Refuse' if on else 'Accept'} new jobs")


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
    values = {"pattern": policy["tube"], **settings}
    try:
        policy_from(values)
    except ValueError as error:
        raise errors.ToolUsageError(f"policy: {error}") from error
    return values


def _plan_policy_set(target: Target, arguments: Arguments) -> Plan:
    return Plan(1, f"Set the policy of {_policy(arguments)['pattern']}")


def _run_policy_set(target: Target, arguments: Arguments, progress: Progress) -> str:
    policy = _policy(arguments)
    with target.control_client() as control:
        control.ask("policy-set", policy=policy)
    progress.add(1)
    return f"Set the policy of {policy['pattern']}"


def _plan_policy_unset(target: Target, arguments: Arguments) -> Plan:
    return Plan(1, f"Unset the online policy of {_text(arguments, 'pattern')}")


def _run_policy_unset(target: Target, arguments: Arguments, progress: Progress) -> str:
    pattern = _text(arguments, "pattern")
    with target.control_client() as control:
        control.ask("policy-unset", pattern=pattern)
    progress.add(1)
    return f"Unset the online policy of {pattern}"


def _plan_schedule_run(target: Target, arguments: Arguments) -> Plan:
    return Plan(1, f"Put the job of schedule {_text(arguments, 'name')} now")


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
    "delete": _kind(
        "ids",
        _plan_ids("Delete", FREE_STATES),
        _run_ids(job_commands.delete, "DELETED", "Deleted"),
        can_stop=True,
    ),
    "bury": _kind(
        "ids",
        _plan_ids("Bury", TO_BURY),
        _run_ids(_bury, "BURIED", "Buried"),
        can_stop=True,
    ),
    "redrive": _kind("tube ids shape rate", _plan_redrive, _run_redrive, can_stop=True),
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
