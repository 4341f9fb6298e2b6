"""Operations on jobs and tubes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

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
    STATES,
    features_of,
    job_stats,
    tube_stats,
)
from beanstalkd_py.admin.truncate import TruncateResult, truncate, truncate_on_server
from beanstalkd_py.console.operations.matching import (
    BATCH_JOBS,
    Change,
    change_matching,
    has_filter,
    plan_matching,
)
from beanstalkd_py.console.operations.operation import (
    Arguments,
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
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import JobFilter, all_jobs, can_list, dead_letters
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import UINT32_MAX

TO_BURY = (READY, DELAYED)
TO_KICK = (BURIED, DELAYED)
PAUSE_MAX_S = 365 * 24 * 3600


def plan_jobs(verb: str, states: Sequence[str]) -> Planner:
    """Return the dry run for the jobs of `ids`, or for those that match `filter`."""

    def plan(target: Target, arguments: Arguments) -> Plan:
        if has_filter(arguments):
            return plan_matching(target, arguments, verb, states)
        with target.connection() as connection:
            found = job_stats(connection, ids_of(arguments))
        count = sum(job is not None and job.state in states for job in found)
        return Plan(count, f"{verb} {counted(count, 'job')}")

    return plan


def run_jobs(change: Change, word: str, states: Sequence[str], text: str) -> Runner:
    def run(target: Target, arguments: Arguments, progress: Progress) -> str:
        if has_filter(arguments):
            return change_matching(target, arguments, progress, change, word, states, text)
        limiter = RateLimiter(None, BATCH_JOBS)
        changed = _change_ids(target, ids_of(arguments), limiter, progress, change, word)
        return f"{text} {counted(changed, 'job')}"

    return run


def _change_ids(
    target: Target,
    ids: Sequence[int],
    limiter: RateLimiter,
    progress: Progress,
    command: Change,
    word: str,
) -> int:
    rest = iter(ids)

    def change(connection: Connection, most: int) -> tuple[int, int]:
        batch = list(itertools.islice(rest, most))
        return len(batch), command(connection, batch).count(word)

    return _in_batches(target, len(ids), limiter, progress, change)


def _in_batches(
    target: Target,
    total: int,
    limiter: RateLimiter,
    progress: Progress,
    change: Callable[[Connection, int], tuple[int, int]],
) -> int:
    """Let `change` try a number of jobs at a time, until `total` or until it tries none.

    `change` gets the largest number, and returns how many it has tried and how many it has changed.
    Returns how many were changed.
    """
    tried, changed = 0, 0
    with target.connection() as connection:
        while (
            tried < total
            and not progress.is_stopped
            and limiter.wait(connection, lambda: progress.is_stopped)
        ):
            now_mono = time.monotonic()
            count, done = change(connection, min(limiter.batch_jobs, total - tried))
            if count == 0:
                break
            limiter.record(count, now_mono)
            tried += count
            changed += done
            progress.add(done)
            gevent.sleep(0)
    return changed


def bury(connection: Connection, ids: Sequence[int]) -> list[str]:
    found = job_stats(connection, ids)
    return job_commands.bury(connection, [job.id for job in found if job and job.state in TO_BURY])


# --- tubes ---------------------------------------------------------------------------------------


def plan_kick(target: Target, arguments: Arguments) -> Plan:
    if "ids" in arguments or has_filter(arguments):
        return plan_jobs("Make ready:", TO_KICK)(target, arguments)
    tube = tube_of(arguments)
    bound = number_of(arguments, "count", 1, UINT32_MAX, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    state = BURIED if stats.buried else DELAYED
    count = min(bound, stats.buried or stats.delayed)
    return Plan(count, f"Make {counted(count, f'{state} job')} of {tube} ready")


def run_kick(target: Target, arguments: Arguments, progress: Progress) -> str:
    if "ids" in arguments or has_filter(arguments):
        run = run_jobs(job_commands.kick, "KICKED", TO_KICK, "Made ready:")
        return run(target, arguments, progress)
    bound = number_of(arguments, "count", 1, UINT32_MAX, None)
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


def plan_delete(target: Target, arguments: Arguments) -> Plan:
    if has_filter(arguments) or "shape" not in arguments:
        return plan_jobs("Delete", FREE_STATES)(target, arguments)
    count = len(_buried(target, arguments))
    return Plan(count, f"Delete {counted(count, 'buried job')} of {tube_of(arguments)}")


def run_delete(target: Target, arguments: Arguments, progress: Progress) -> str:
    if has_filter(arguments) or "shape" not in arguments:
        run = run_jobs(job_commands.delete, "DELETED", FREE_STATES, "Deleted")
        return run(target, arguments, progress)
    ids, limiter = _buried(target, arguments), RateLimiter(None, BATCH_JOBS)
    count = _change_ids(target, ids, limiter, progress, job_commands.delete, "DELETED")
    return f"Deleted {counted(count, 'job')}"


def _is_whole_tube(arguments: Arguments) -> bool:
    return "shape" not in arguments and arguments.get("ids") is None


def plan_redrive(target: Target, arguments: Arguments) -> Plan:
    rate = rate_of(arguments)
    if _is_whole_tube(arguments):
        with target.connection() as connection:
            count = tube_stats(connection, tube_of(arguments)).buried
    else:
        count = len(_buried(target, arguments))
    speed = f" at {rate:g} per second" if rate else ""
    return Plan(count, f"Make {counted(count, 'buried job')} of {tube_of(arguments)} ready{speed}")


def run_redrive(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, limiter = tube_of(arguments), RateLimiter(rate_of(arguments), BATCH_JOBS)
    if _is_whole_tube(arguments) and not _lists_jobs(target, tube):
        count = _kick_buried(target, tube, limiter, progress)
    else:
        ids = _buried(target, arguments)
        count = _change_ids(target, ids, limiter, progress, job_commands.kick, "KICKED")
    return f"Made {counted(count, 'buried job')} of {tube} ready"


def _lists_jobs(target: Target, tube: str) -> bool:
    with target.connection() as connection:
        return can_list(connection, tube)


def _kick_buried(target: Target, tube: str, limiter: RateLimiter, progress: Progress) -> int:
    """Kick as many jobs as are buried now, in their order: the server does not list their ids."""

    def kick(connection: Connection, most: int) -> tuple[int, int]:
        # `kick` makes delayed jobs ready when no job is buried.
        count = min(most, tube_stats(connection, tube).buried)
        return count, job_commands.kick_first(connection, tube, count) if count else 0

    with target.connection() as connection:
        total = tube_stats(connection, tube).buried
    return _in_batches(target, total, limiter, progress, kick)


def plan_pause(target: Target, arguments: Arguments) -> Plan:
    tube = tube_of(arguments)
    seconds = number_of(arguments, "seconds", 0, PAUSE_MAX_S, None)
    with target.connection() as connection:
        stats = tube_stats(connection, tube)
    if seconds == 0:
        return Plan(1, f"End the pause of {tube}, which has {stats.paused_s} s left")
    return Plan(1, f"Pause {tube} for {seconds} s: {counted(stats.ready, 'ready job')} wait")


def run_pause(target: Target, arguments: Arguments, progress: Progress) -> str:
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
        "pri": number_of(arguments, "pri", 0, UINT32_MAX, 65536),
        "delay_s": number_of(arguments, "delay", 0, UINT32_MAX, 0),
        "ttr_s": number_of(arguments, "ttr", 1, UINT32_MAX, 60),
    }
    return body.encode(), numbers


def plan_put(target: Target, arguments: Arguments) -> Plan:
    body, _ = _put_values(arguments)
    return Plan(1, f"Put a job of {counted(len(body), 'byte')} into {tube_of(arguments)}")


def run_put(target: Target, arguments: Arguments, progress: Progress) -> str:
    tube, (body, numbers) = tube_of(arguments), _put_values(arguments)
    with target.connection() as connection:
        job = job_commands.put(connection, tube, body, **numbers)
    progress.add(1)
    return f"Put job {job} into {tube}"


def _limit_of(arguments: Arguments) -> int | None:
    """Return the greatest number of jobs to move; None for no limit."""
    if arguments.get("limit") is None:
        return None
    return number_of(arguments, "limit", 1, UINT32_MAX, None)


def plan_move(target: Target, arguments: Arguments) -> Plan:
    source, to, states = tube_of(arguments), tube_of(arguments, "to"), states_of(arguments)
    limit = _limit_of(arguments)
    if source == to:
        raise errors.ToolUsageError("to: give another tube")
    rate_of(arguments)
    with target.connection() as connection:
        found = tube_stats(connection, source).count(states)
    count = found if limit is None else min(found, limit)
    return Plan(count, f"Move {counted(count, 'job')} from {source} to {to}")


def run_move(target: Target, arguments: Arguments, progress: Progress) -> str:
    source, to = tube_of(arguments), tube_of(arguments, "to")
    result, limit = MoveResult(), _limit_of(arguments)
    with target.connection() as connection:
        move(
            *(connection, source, to, states_of(arguments), limit, rate_of(arguments)),
            result=result,
            deferred=lambda: progress.counting(lambda: result.moved),
            stopped=lambda: progress.is_stopped,
        )
    return f"Moved {counted(result.moved, 'job')} from {source} to {to}"


def plan_truncate(target: Target, arguments: Arguments) -> Plan:
    tube, states = tube_of(arguments), states_of(arguments)
    with target.connection() as connection:
        count = tube_stats(connection, tube).count(states)
    kept = [state for state in STATES if state not in states]
    return Plan(count, f"Delete {counted(count, 'job')} of {tube}; {' and '.join(kept)} jobs stay")


def run_truncate(target: Target, arguments: Arguments, progress: Progress) -> str:
    """Delete jobs by the server if it can, because its history then has them as truncated."""
    tube, states, result = tube_of(arguments), states_of(arguments), TruncateResult()

    def is_stopped() -> bool:
        progress.add(result.deleted - progress.operation.done)
        return progress.is_stopped

    try:
        with target.control_client() as control:
            truncate_on_server(control, tube, states, result, is_stopped)
    except errors.NoControlError:
        with target.connection() as connection:
            if set(states) == set(FREE_STATES) and "truncate" in features_of(connection):
                connection.extend_timeout(None)
                reply = connection.execute(b"truncate " + tube.encode())
                result.deleted = int(reply.expect(b"TRUNCATED").values[0])
            else:
                truncate(connection, tube, states, result, stopped=is_stopped)
    is_stopped()
    return f"Deleted {counted(result.deleted, 'job')} of {tube}"
