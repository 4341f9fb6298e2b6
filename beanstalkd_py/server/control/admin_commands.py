"""The requests of the control socket, one method each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import gevent

from beanstalkd_py import errors
from beanstalkd_py.control.messages import Message
from beanstalkd_py.core.placement import shard_of
from beanstalkd_py.core.step_results import FREE_STATES, StepOutcome
from beanstalkd_py.plural import counted
from beanstalkd_py.schedules.schedule import schedule_values
from beanstalkd_py.server.logging.setup import LOGGER
from beanstalkd_py.server.parent.online_policies import Policies, with_policy, without_policy
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.stats.connection_list import merge_pages
from beanstalkd_py.server.stats.worker_stats import worker_row
from beanstalkd_py.server.tube_policies import policy_from, policy_values

if TYPE_CHECKING:
    from beanstalkd_py.server.archiver.archiver_supervisor import ArchiverSupervisor
    from beanstalkd_py.server.parent.loop import ParentLoop
    from beanstalkd_py.server.parent.worker_supervisor import WorkerSupervisor

Answer = Generator[Any, None, Any]

MIN_RATIO = 1.0
MAX_RATIO = 100.0
"""Limits of the ratio of file bytes to live bytes that ends a compaction."""
COMPACTION_WAIT_S = 0.02
NO_PROGRESS_S = 30.0
PROGRESS_S = 0.1
STEP_JOBS = 1000
"""Jobs that a worker deletes in one step, in less than a millisecond."""
TRUNCATION_WAIT_S = 0.002
STATUS_FIELDS = ("last_put", "next_tick", "puts", "errors", "error")
"""The fields of ScheduleStatus that an answer has besides the settings."""
PROGRESS_JOBS = 10_000
"""Jobs per progress report. The client can stop the command only at a report."""


class AdminCommands:
    """Executes the requests for one server."""

    def __init__(
        self,
        workers: Sequence[WorkerSupervisor],
        shared: SharedMemory,
        server: ParentLoop,
        colocate: bytes | None,
        archiver: ArchiverSupervisor | None,
    ) -> None:
        self._workers = workers
        self._colocate = colocate
        self._shared = shared
        self._server = server
        self._archiver = archiver
        self._compacting = False

    def handlers(self) -> dict[str, Callable[[Message], Answer]]:
        return {
            "workers": self._list_workers,
            "durations": self._count_durations,
            "drain": self._drain,
            "reload": self._reload,
            "compact": self._compact,
            "conns": self._list_connections,
            "truncate": self._truncate,
            "tubes": self._list_tubes,
            "history": self._history_status,
            "replication": self._replication_status,
            "policies": self._list_policies,
            "policy-set": self._set_policy,
            "policy-unset": self._unset_policy,
            "schedules": self._list_schedules,
            "schedule-run": self._run_schedule,
        }

    def _list_workers(self, _: Message) -> Answer:
        """Answer with a part per worker: see worker_row."""
        for worker in self._workers:
            yield worker_row(worker.status(), self._shared)

    def _count_durations(self, _: Message) -> Answer:
        """Count durations by powers of two of nanoseconds, as bs_histogram does, over all workers.

        The answer is {"queue": counts, "sync": counts}: the time in the queue, and that of syncs.
        """
        workers = self._shared.all_counters()

        def total(field: str) -> list[int]:
            counts = (getattr(worker, field).count for worker in workers)
            return [sum(bucket) for bucket in zip(*counts, strict=True)]

        yield from ()
        return {"queue": total("in_queue"), "sync": total("sync_time")}

    def _drain(self, request: Message) -> Answer:
        """Set draining, or only report it without "on": {"draining": bool}."""
        match request.get("on"):
            case bool(draining):
                if draining != self._shared.draining:
                    state = "refused" if draining else "accepted again"
                    LOGGER.info("draining: puts are %s", state)
                self._shared.draining = draining
                self._server.state.report()
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

    def _list_policies(self, _: Message) -> Answer:
        """Answer with a part per policy, in the order of precedence: its values, and `from`."""
        for source, policies in zip(("online", "file"), self._server.policies(), strict=True):
            for policy in policies:
                yield {**policy_values(policy), "from": source}

    def _set_policy(self, request: Message) -> Answer:
        """Set a policy online: {"online": number of online policies}."""
        values = request.get("policy")
        try:
            policy = policy_from(values if isinstance(values, dict) else {})
        except ValueError as error:
            raise errors.ControlError(f"policy-set: {error}") from error
        changed = with_policy(self._server.policies()[0], policy)
        return (yield from self._change_policies(changed, f"policy {policy.pattern} is set"))

    def _unset_policy(self, request: Message) -> Answer:
        """Unset an online policy: {"online": number of online policies}."""
        pattern = request.get("pattern")
        online = self._server.policies()[0]
        if not isinstance(pattern, str) or all(policy.pattern != pattern for policy in online):
            raise errors.ControlError(f"policy-unset: no policy {pattern!r} was set online")
        changed = without_policy(online, pattern)
        return (yield from self._change_policies(changed, f"policy {pattern} is unset"))

    def _change_policies(self, policies: Policies, text: str) -> Answer:
        try:
            self._server.change_online_policies(policies)
        except OSError as error:
            raise errors.ControlError(f"cannot save the policies: {error}") from error
        LOGGER.info("%s", text)
        yield from ()
        return {"online": len(policies)}

    def _list_schedules(self, _: Message) -> Answer:
        """Answer with a part per schedule: its settings and its status. Times are epochs."""
        scheduler = self._server.scheduler
        for one in scheduler.statuses() if scheduler is not None else []:
            status = {name.replace("_", "-"): getattr(one, name) for name in STATUS_FIELDS}
            yield {**schedule_values(one.schedule), **status}

    def _run_schedule(self, request: Message) -> Answer:
        """Put the job of a schedule now: {"id": job}."""
        name, scheduler = request.get("name"), self._server.scheduler
        if scheduler is None or name not in [one.schedule.name for one in scheduler.statuses()]:
            raise errors.ControlError(f"schedule-run: no schedule {name!r}; see schedule list")
        try:
            job_id = scheduler.put_now(name)
        except errors.PutError as error:
            raise errors.ControlError(f"schedule {name}: cannot put the job: {error}") from error
        LOGGER.info("schedule %s: job %d was put on request", name, job_id)
        yield from ()
        return {"id": job_id}

    def _compact(self, request: Message) -> Answer:
        """Compact the binlogs of all workers one by one: {"freed-bytes": bytes}."""
        match request.get("ratio"):
            case bool() as other:
                raise errors.ControlError(f"compact: ratio is {other!r}; give a number")
            case float() | int() as ratio if MIN_RATIO <= ratio <= MAX_RATIO:
                per_cent = round(ratio * 100)
            case other:
                raise errors.ControlError(
                    f"compact: ratio is {other!r}; give {MIN_RATIO} to {MAX_RATIO}"
                )
        if self._compacting:
            raise errors.ControlError("compact: another compaction is running; try again later")
        freed = 0
        self._compacting = True
        try:
            for worker in self._workers:
                freed += yield from _compact(worker, per_cent)
        finally:
            self._compacting = False
        LOGGER.info("compacted: %s freed", counted(freed, "byte"))
        return {"freed-bytes": freed}

    def _list_connections(self, _: Message) -> Answer:
        """Answer with a part per connection that sent data, then {"silent": number of others}."""
        pages = [worker.pages("connections") for worker in self._serving()]
        yield from merge_pages(chain.from_iterable(pages))
        return {"silent": int(self._shared.parent.connections)}

    def _truncate(self, request: Message) -> Answer:
        """Delete a tube's jobs in some states: {"deleted": jobs}, when the deletion is on disk."""
        match request:
            case {"tube": str(tube), "states": [_, *_] as states} if all(map(_is_free, states)):
                name = tube.encode()
            case _:
                allowed = ", ".join(FREE_STATES)
                raise errors.ControlError(f"truncate: give a tube and states of {allowed}")
        owner = self._workers[shard_of(name, len(self._workers), self._colocate)]
        deleted = yield from _truncate(owner, name, states)
        LOGGER.info("truncated tube %s: %s deleted", tube, counted(deleted))
        return {"deleted": deleted}

    def _list_tubes(self, _: Message) -> Answer:
        """Answer with packed parts (control.tube_stats), then {"missing": [worker, ...]}."""
        serving = self._serving()
        for worker in serving:
            yield from worker.pages("tube_stats")
        return {"missing": [worker.index for worker in self._workers if worker not in serving]}

    def _history_status(self, _: Message) -> Answer:
        if self._archiver is None:
            raise errors.ControlError("no history; start the server with serve --history DIR")
        yield from ()
        status = asdict(self._archiver.status())
        return {name.replace("_", "-"): value for name, value in status.items()}

    def _replication_status(self, _: Message) -> Answer:
        """Answer with the status of the replicator of a primary, or None without replication."""
        yield from ()
        replicator = self._server.replicator
        if replicator is None:
            return None
        status = asdict(replicator.status)
        return {name.replace("_", "-"): value for name, value in status.items()}

    def _serving(self) -> list[WorkerSupervisor]:
        return [worker for worker in self._workers if worker.state == "serving"]


def _is_free(state: object) -> bool:
    return isinstance(state, str) and state in FREE_STATES


def _compact(worker: WorkerSupervisor, per_cent: int) -> Generator[dict[str, int], None, int]:
    """Yield {"worker", "bytes", "alive"} as progress and at the end; return the bytes freed.

    Ends when the files have at most `per_cent` bytes for every hundred live bytes. Also ends when
    all initial files are gone, because clients add new ones. Raises ControlError if the worker ends
    or there is no progress.
    """
    last_file, first_bytes, sizes = 0, -1, (-1, -1)
    progress_mono = reported_mono = time.monotonic()
    while True:
        step = worker.compact(per_cent, last_file)
        last_file, now_mono = step.last, time.monotonic()
        first_bytes = step.total_bytes if first_bytes < 0 else first_bytes
        report = {"worker": worker.index, "bytes": step.total_bytes, "alive": step.alive_bytes}
        if step.outcome == StepOutcome.DONE:
            yield report
            return first_bytes - step.total_bytes
        if sizes != (step.total_bytes, step.alive_bytes):
            progress_mono, sizes = now_mono, (step.total_bytes, step.alive_bytes)
        if now_mono > progress_mono + NO_PROGRESS_S:
            raise errors.ControlError(
                f"cannot compact worker {worker.index} further; check for a full disk"
            )
        if now_mono >= reported_mono + PROGRESS_S:
            reported_mono = now_mono
            yield report
        gevent.sleep(COMPACTION_WAIT_S if step.outcome == StepOutcome.WAIT else 0)


def _truncate(
    worker: WorkerSupervisor, tube: bytes, states: Sequence[str]
) -> Generator[dict[str, int], None, int]:
    """Yield {"deleted": jobs} as progress; return the number of jobs. Also deletes new jobs.

    Raises ControlError if the worker ends, or the disk has no space for the deletion's entries.
    """
    deleted = generation = reported = 0
    step_jobs = STEP_JOBS
    while True:
        step = worker.truncate(tube, states, step_jobs, generation)
        deleted, generation = deleted + step.removed, step.generation
        if step.full:
            raise errors.ControlError(
                f"deleted {counted(deleted)}, then the binlog was full; free disk space and retry"
            )
        if step.outcome == StepOutcome.DONE:
            return deleted
        if step.outcome == StepOutcome.WAIT:
            step_jobs = 0  # only wait for the sync: with new puts, deleting would never end
        if deleted >= reported + PROGRESS_JOBS:
            reported = deleted
            yield {"deleted": deleted}
        gevent.sleep(TRUNCATION_WAIT_S if step.outcome == StepOutcome.WAIT else 0)
