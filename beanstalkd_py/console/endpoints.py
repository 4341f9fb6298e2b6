"""What the console answers about a server, by path."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from beanstalkd_py import errors
from beanstalkd_py.admin.statistics import RESERVED, STATES
from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.audit_log import AuditLog
from beanstalkd_py.console.live import Live, event, samples_of
from beanstalkd_py.console.operations.kinds import KINDS
from beanstalkd_py.console.operations.operation import Operation
from beanstalkd_py.console.operations.running import Caller, Operations, plan
from beanstalkd_py.console.requests import RefusedRequestError, Values, Visit, checked_tube, require
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views import history, job_entries, jobs, server_state, timeline
from beanstalkd_py.console.views.examination import Examination
from beanstalkd_py.console.views.export import export_lines

MOST_JOBS = 1000
MOST_AGE_S = 2**32
MOST_ID = 2**64 - 1
OPERATIONS_SHOWN = 50
MOST_EXPORTS = 4
"""Each has a connection of its own to the server."""


class ServerPages:
    """What the console has about one server."""

    def __init__(self, target: Target, audit: AuditLog) -> None:
        self.target = target
        self.live = Live(target, lambda: iter([self._operations_event()]))
        self.operations = Operations(target, audit, self._changed)
        self.history = history.History(target.history)
        self.examination = Examination(target)
        self.exports = 0
        """How many run."""

    def _changed(self, _: Operation) -> None:
        self.live.publish(self._operations_event())

    def _operations_event(self) -> bytes:
        return event("operations", {"operations": self.shown_operations()})

    def shown_operations(self) -> list[Values]:
        return [one.shown() for one in self.operations.list(OPERATIONS_SHOWN)]


Handler = Callable[[Visit, ServerPages], object]
"""Returns a value for JSON, or a generator of the pieces of a file."""


def _tube(visit: Visit, pages: ServerPages) -> object:
    return server_state.one_tube(pages.target, checked_tube(str(visit.values["tube"])))


def _jobs(visit: Visit, pages: ServerPages) -> object:
    state = visit.text("state") or jobs.ANY
    if state not in (jobs.ANY, *STATES):
        raise RefusedRequestError(400, f"state is {state!r}; use one of any, {', '.join(STATES)}")
    wanted = jobs.JobFilter(
        visit.tube(),
        state,
        visit.number("min_age", 0, MOST_AGE_S),
        visit.optional("max_age", MOST_AGE_S),
        visit.number("min_pri", 0, MOST_AGE_S),
        visit.optional("max_pri", MOST_AGE_S),
        visit.text("body"),
    )
    after, limit = visit.number("after", 0, MOST_ID), visit.number("limit", 100, MOST_JOBS)
    return jobs.list_jobs(pages.target, wanted, after, max(limit, 1))


def _export(visit: Visit, pages: ServerPages) -> object:
    if pages.exports >= MOST_EXPORTS:
        raise RefusedRequestError(503, f"{MOST_EXPORTS} exports run; wait until one has ended")
    return _counted_export(pages, export_lines(pages.target, visit.tube()))


def _counted_export(
    pages: ServerPages, lines: Generator[bytes, None, None]
) -> Generator[bytes, None, None]:
    pages.exports += 1
    try:
        yield from lines
    finally:
        pages.exports -= 1


def _job(visit: Visit, pages: ServerPages) -> object:
    number = visit.values["job"]
    assert isinstance(number, int)
    if not 0 < number <= MOST_ID:
        raise RefusedRequestError(404, f"there is no job {number}")
    try:
        found = jobs.one_job(pages.target, number)
    except errors.RefusedError:
        messages = pages.history.messages_of_job(number)
        if not messages:
            raise
        events = timeline.ended_timeline(messages[0])
        body, stats = messages[0].body, messages[0].properties
        rest = {"live": False, "holder": None, "history": messages[0]}
        return {"stats": stats, "body": body, "timeline": events, **rest}
    entries = job_entries.entries_of_job(pages.target, number, found.stats)
    is_reserved = found.stats["state"] == RESERVED
    holder = server_state.holder(pages.target, number) if is_reserved else None
    return {
        "stats": found.stats,
        "body": found.body,
        "live": True,
        "holder": holder,
        "timeline": timeline.live_timeline(found.stats, entries),
        "history": None,
    }


def _dead_letters(visit: Visit, pages: ServerPages) -> object:
    if not visit.text("tube"):
        return jobs.buried_tubes(pages.target)
    return jobs.dead_letters(pages.target, visit.tube())


def _connections(visit: Visit, pages: ServerPages) -> object:
    limit = visit.number("limit", 1000, server_state.MOST_CONNECTIONS)
    return {"connections": server_state.connections(pages.target, visit.text("tube"), limit)}


def _history_messages(visit: Visit, pages: ServerPages) -> object:
    query = history.HistoryQuery(
        visit.text("tube"),
        visit.text("key"),
        visit.seconds("from"),
        visit.seconds("to"),
        visit.text("event"),
        visit.text("body"),
        visit.optional("before", 2**63 - 1),
        visit.number("limit", 100, history.MOST_MESSAGES),
    )
    return pages.history.messages(query)


def _examine_again(visit: Visit, pages: ServerPages) -> object:
    pages.examination.begin()
    return pages.examination.view()


def _begin(visit: Visit, pages: ServerPages) -> object:
    values = dict(visit.json())
    kind, dry_run = values.pop("kind", None), values.pop("dry_run", False)
    if not isinstance(kind, str) or kind not in KINDS:
        raise RefusedRequestError(400, f"kind is {kind!r}; use one of {', '.join(KINDS)}")
    require(visit, KINDS[kind].role)
    if dry_run is not False:
        return plan(kind, pages.target, values)
    return pages.operations.begin(kind, values, _caller(visit))


def _caller(visit: Visit) -> Caller:
    return Caller(visit.user, visit.address)


def _stop(visit: Visit, pages: ServerPages) -> object:
    number = visit.values["number"]
    assert isinstance(number, int)
    return pages.operations.stop(number, _caller(visit))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below a server, the least role, and the answer. `handler` is None for the events."""

    method: str
    path: str
    role: Role
    handler: Handler | None


def _read(path: str, handler: Handler | None) -> Endpoint:
    return Endpoint("GET", path, Role.READ, handler)


ENDPOINTS = (
    _read("live", None),
    _read("samples", lambda visit, pages: samples_of(pages.live)),
    _read("tubes/<tube:tube>", _tube),
    _read("jobs", _jobs),
    _read("jobs/<int:job>", _job),
    _read("jobs/export", _export),
    _read("connections", _connections),
    _read("dead-letters", _dead_letters),
    _read("history/topics", lambda visit, pages: {"topics": pages.history.topics()}),
    _read("history/messages", _history_messages),
    _read("schedules", lambda visit, pages: {"schedules": server_state.schedules(pages.target)}),
    _read("policies", lambda visit, pages: {"policies": server_state.policies(pages.target)}),
    _read("binlog", lambda visit, pages: server_state.binlog(pages.target)),
    _read(
        "replication",
        lambda visit, pages: {"replication": server_state.replication(pages.target)},
    ),
    _read("doctor", lambda visit, pages: pages.examination.view()),
    Endpoint("POST", "doctor", Role.READ, _examine_again),
    _read("operations", lambda visit, pages: {"operations": pages.shown_operations()}),
    Endpoint("POST", "operations", Role.OPERATE, _begin),
    Endpoint("POST", "operations/<int:number>/stop", Role.OPERATE, _stop),
)
