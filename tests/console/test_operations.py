"""Operations of a console: dry runs, runs, stops, audit entries, kills, and two users at once."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gevent
import pytest
from cli.operator import Operator
from console.consoles import ConsoleProcess, Visitor, console, users_file
from processes import eventually
from servers import Server, ours, reference
from wire import Client, in_tube

from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.connection import Connection
from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.audit_log import AuditLog
from beanstalkd_py.console.endpoints import MOST_EXPORTS
from beanstalkd_py.console.operations import matching
from beanstalkd_py.console.operations.kinds import KINDS
from beanstalkd_py.console.operations.operation import Kind, Operation, Plan, Progress
from beanstalkd_py.console.operations.running import MOST_RUNNING, Caller, Operations
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views.jobs import JobFilter, job_pages

pytestmark = pytest.mark.costly
STARTERS = {"ours": ours, "C": reference}
JOBS = 7


@pytest.fixture(scope="module", params=list(STARTERS))
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    with STARTERS[request.param]() as running:
        yield running


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "log"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return users_file(tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module")
def beside(either: Server, users: Path, log: Path) -> Iterator[ConsoleProcess]:
    with console(either, args=("--users", users, "--audit-log", log)) as running:
        yield running


@pytest.fixture(scope="module")
def admin(beside: ConsoleProcess) -> Visitor:
    return beside.user("admin")


@pytest.fixture
def wire(either: Server, tube: bytes) -> Iterator[Client]:
    with either.connect() as client:
        yield in_tube(client, tube)


@pytest.fixture
def name(tube: bytes) -> str:
    return tube.decode()


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def fill(client: Client, count: int = JOBS) -> list[int]:
    return [client.put(b"job %d" % number) for number in range(count)]


def bury(client: Client, count: int) -> list[int]:
    jobs = fill(client, count)
    for job in jobs:
        client.ask(b"reserve-job %d\r\n" % job)
        assert client.ask(b"bury %d 10\r\n" % job) == b"BURIED\r\n"
    return jobs


def states(client: Client, jobs: list[int]) -> list[str]:
    """Return the state of each job; "gone" without one."""
    found = []
    for job in jobs:
        reply = client.ask(b"stats-job %d\r\n" % job)
        lines = reply.decode().splitlines()
        found.append(next((one[7:] for one in lines if one.startswith("state: ")), "gone"))
    return found


def tube_state(client: Client, tube: str) -> list[str]:
    """Return what a dry run may not change."""
    reply = client.ask(b"stats-tube %b\r\n" % tube.encode()).decode()
    kept = ("current-jobs", "total-jobs", "cmd-", "pause: ")
    return [line for line in reply.splitlines() if line.startswith(kept)]


Arguments = dict[str, object]


def _kick(client: Client, tube: str) -> tuple[Arguments, int]:
    bury(client, JOBS)
    return {"tube": tube, "count": 4}, 4


def _kick_ids(client: Client, tube: str) -> tuple[Arguments, int]:
    return {"ids": [*bury(client, 3), *fill(client, 2), 10**15]}, 3


def _delete(client: Client, tube: str) -> tuple[Arguments, int]:
    jobs = fill(client)
    client.ask(b"reserve-job %d\r\n" % jobs[0])
    return {
        "ids": [*jobs, jobs[1], 10**15]
    }, JOBS  # this connection does not hold it in the console


def _bury(client: Client, tube: str) -> tuple[Arguments, int]:
    return {"ids": [*fill(client), *bury(client, 2), 10**15]}, JOBS


def _redrive(client: Client, tube: str) -> tuple[Arguments, int]:
    bury(client, JOBS)
    fill(client, 2)
    return {"tube": tube, "ids": None, "rate": None}, JOBS


def _redrive_ids(client: Client, tube: str) -> tuple[Arguments, int]:
    delayed = int(client.ask(b"put 0 1000 60 1\r\nx\r\n").split()[1])
    return {"tube": tube, "ids": [*bury(client, 3), *fill(client, 2), delayed, 10**15]}, 3


def _pause(client: Client, tube: str) -> tuple[Arguments, int]:
    fill(client)
    return {"tube": tube, "seconds": 100}, 1


def _put(client: Client, tube: str) -> tuple[Arguments, int]:
    return {"tube": tube, "body": "\0 ä \r\n", "pri": 5, "delay": 0, "ttr": 9}, 1


def _move(client: Client, tube: str) -> tuple[Arguments, int]:
    fill(client)
    bury(client, 2)
    return {"tube": tube, "to": f"{tube}-to", "states": ["ready", "buried"], "rate": None}, JOBS + 2


def _truncate(client: Client, tube: str) -> tuple[Arguments, int]:
    fill(client)
    bury(client, 2)
    return {"tube": tube}, JOBS + 2


def _truncate_states(client: Client, tube: str) -> tuple[Arguments, int]:
    fill(client)
    bury(client, 2)
    return {"tube": tube, "states": ["buried"]}, 2


def _move_some(client: Client, tube: str) -> tuple[Arguments, int]:
    fill(client)
    return {"tube": tube, "to": f"{tube}-to", "states": ["ready"], "limit": 3}, 3


def _import(client: Client, tube: str) -> tuple[Arguments, int]:
    lines = '{"body": "one", "state": "buried"}\n\n{"body": "two", "pri": 3}\n{"body": "\u00e4"}\n'
    return {"tube": tube, "lines": lines, "skip": 1}, 2


CASES: dict[str, Callable[[Client, str], tuple[Arguments, int]]] = {
    "kick": _kick,
    "kick ids": _kick_ids,
    "delete": _delete,
    "bury": _bury,
    "redrive": _redrive,
    "redrive ids": _redrive_ids,
    "pause": _pause,
    "put": _put,
    "move": _move,
    "move some": _move_some,
    "truncate": _truncate,
    "truncate states": _truncate_states,
    "import": _import,
}


@pytest.mark.parametrize("case", CASES)
def test_dry_run_then_run(
    admin: Visitor, wire: Client, name: str, log: Path, case: str, either: Server
) -> None:
    kind = case.split()[0]
    arguments, count = CASES[case](wire, name)
    if kind == "delete":
        count -= 1  # the reserved one
    before, logged = tube_state(wire, name), len(entries(log))
    plan = admin.dry_run(kind, **arguments)
    assert plan["count"] == count, plan
    assert tube_state(wire, name) == before
    assert len(entries(log)) == logged, "a dry run is not in the audit log"
    done = admin.run(kind, **arguments)
    assert (done["error"], done["done"], done["total"]) == (None, count, count), done
    assert done["kind"] == kind
    assert done["user"] == "admin"
    assert done["text"]
    assert done["begun"] <= done["ended"] <= time.time()
    assert tube_state(wire, name) != before
    assert eventually(lambda: len(entries(log)) == logged + 2)
    begun, ended = entries(log)[-2:]
    for entry in (begun, ended):
        assert (entry["user"], entry["address"], entry["action"]) == ("admin", "127.0.0.1", kind)
        assert entry["server"] == f"127.0.0.1:{either.port}"
        assert entry["arguments"] == arguments
    assert (begun["outcome"], begun["before"]) == ("begun", plan["text"])
    assert (ended["outcome"], ended["after"]) == ("done", done["text"])


def test_results(admin: Visitor, wire: Client, name: str) -> None:
    """Each kind changes the jobs that it names, and no others."""
    buried = bury(wire, 3)
    admin.run("redrive", tube=name, ids=buried[:2])
    assert states(wire, buried) == ["ready", "ready", "buried"]
    admin.run("bury", ids=buried[:1])
    assert states(wire, buried) == ["buried", "ready", "buried"]
    admin.run("delete", ids=buried[:2])
    assert states(wire, buried) == ["gone", "gone", "buried"]
    put = admin.run("put", tube=name, body="\0 ä \r\n", pri=5, delay=0, ttr=9)
    body = "\0 ä \r\n".encode()
    peeked = wire.ask(b"peek %d\r\n" % int(put["text"].split()[2]))
    assert peeked.endswith(b" %d\r\n%b\r\n" % (len(body), body))
    admin.run("pause", tube=name, seconds=50)
    assert "pause: 50" in tube_state(wire, name)
    admin.run("pause", tube=name, seconds=0)
    assert "pause: 0" in tube_state(wire, name)


FILTERS: dict[str, tuple[str, Arguments, list[str]]] = {
    "a state": ("kick", {"state": "delayed"}, ["delayed"]),
    "no state": ("kick", {}, ["delayed", "buried"]),
    "a body": ("delete", {"body": "ready"}, ["ready"]),
    "priorities": ("delete", {"min_pri": 1, "max_pri": 2}, ["delayed", "buried"]),
    "an age": ("bury", {"max_age": 1000}, ["ready", "delayed"]),
    "a greater age": ("bury", {"min_age": 1000}, []),
    "a state that is never buried": ("bury", {"state": "buried"}, []),
}


@pytest.mark.parametrize("case", FILTERS)
def test_all_jobs_that_match(
    own: Server, own_console: ConsoleProcess, tube: bytes, case: str
) -> None:
    """More jobs than a page of the server's list, in all states, and those of another tube."""
    kind, values, changed = FILTERS[case]
    name, count = tube.decode(), 1200
    with own.connect() as client:
        in_tube(client, tube)
        jobs = {
            "ready": [client.put(b"ready %d" % one) for one in range(count)],
            "delayed": [client.put(b"x", pri=1, delay=1000) for _ in range(3)],
            "buried": [client.put(b"y", pri=2) for _ in range(3)],
            "reserved": [client.put(b"ready z")],
        }
        for job in (*jobs["buried"], *jobs["reserved"]):
            client.ask(b"reserve-job %d\r\n" % job)
        for job in jobs["buried"]:
            client.ask(b"bury %d 2\r\n" % job)
        client.ask(b"use other\r\n")
        other = client.put(b"ready")
        visitor, filters = own_console.visitor(), {"tube": name, **values}
        expected = sum(len(jobs[state]) for state in changed)
        before = tube_state(client, name)
        assert visitor.dry_run(kind, filter=filters)["count"] == expected
        assert tube_state(client, name) == before
        done = visitor.run(kind, filter=filters)
        assert (done["error"], done["done"], done["total"]) == (None, expected, expected)
        after = {"kick": "ready", "delete": "gone", "bury": "buried"}[kind]
        for state, ids in jobs.items():
            assert set(states(client, ids)) == {after if state in changed else state}
        assert states(client, [other]) == ["ready"]


def test_a_filter_leaves_jobs_that_are_put_later(own: Server, tube: bytes) -> None:
    target = Target(Address("127.0.0.1", own.port))
    with own.connect() as client, target.connection() as connection:
        in_tube(client, tube)
        jobs = [client.put(b"x") for _ in range(1500)]
        wanted = JobFilter(tube.decode(), max_age=10)
        pages = job_pages(connection, wanted, time.monotonic())
        first = next(pages)
        time.sleep(2.5)
        client.put(b"x")
        found = itertools.chain(first, *pages)
        assert [job.id for job in found] == jobs


def test_ages_are_those_at_the_start_of_an_operation(own: Server, tube: bytes) -> None:
    target, everything = Target(Address("127.0.0.1", own.port)), JobFilter(tube.decode())
    with own.connect() as client, target.connection() as connection:
        in_tube(client, tube)
        client.put(b"x")
        ((listed,),) = job_pages(connection, everything)
    job = replace(listed, age=107)
    for values, now, before in (
        ({"max_age": 10}, False, True),
        ({"min_age": 10}, True, False),
        ({"min_age": 7, "max_age": 7}, False, True),
    ):
        wanted = JobFilter(tube.decode(), **values)
        assert (wanted.matches(job), wanted.matches(job, 100)) == (now, before), values
    assert everything.matches(job, 107)
    assert not everything.matches(job, 108), "it was put later"


def test_a_dry_run_that_takes_too_long(
    own: Server, tube: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "COUNTED_S", 0.0)
    target, filters = Target(Address("127.0.0.1", own.port)), {"tube": tube.decode()}
    with own.connect() as client:
        in_tube(client, tube)
        fill(client, 2500)
        some = {"filter": {**filters, "body": "job"}}
        plan = matching.plan_matching(target, some, "Delete", ["ready"])
        assert (plan.count, plan.text.split(" of ")[0]) == (None, "Delete at least 2000 jobs")
        # The server knows these without a list.
        plan = matching.plan_matching(target, {"filter": filters}, "Delete", ["ready"])
        assert plan.count == 2500


def test_a_stop_of_an_operation_on_jobs_that_match(own: Server, tube: bytes) -> None:
    target = Target(Address("127.0.0.1", own.port))
    operation = Operation(1, "delete", "", "", {}, time.time(), None)
    progress = Progress(operation, lambda changed: None)

    def change(connection: Connection, ids: Sequence[int]) -> list[str]:
        progress.is_stopped = True
        return ["DELETED"] * len(ids)

    with own.connect() as client:
        in_tube(client, tube)
        fill(client, 1500)
    filters = {"filter": {"tube": tube.decode(), "body": "0"}}
    text = matching.change_matching(
        *(target, filters, progress, change, "DELETED", ["ready"], "Deleted")
    )
    assert text == f"Deleted 100 jobs of {tube.decode()} that match body '0'"


@pytest.mark.parametrize(
    "wrong",
    [
        {"filter": "mails"},
        {"filter": {}},
        {"filter": {"tube": "default", "state": "reserved"}},
        {"filter": {"tube": "default", "min_age": -1}},
        {"filter": {"tube": "default", "max_pri": True}},
        {"filter": {"tube": "default", "body": 7}},
        {"filter": {"tube": "default", "ids": [1]}},
        {"filter": {"tube": "no-such-tube"}},
        {"filter": {"tube": "default"}, "ids": [1]},
        {"filter": {"tube": "default"}, "tube": "default"},
        {"filter": {"tube": "default"}, "shape": "x", "tube": "default"},
    ],
)
def test_wrong_filters(own_console: ConsoleProcess, wrong: dict[str, object]) -> None:
    values = {"kind": "delete", "dry_run": True, **wrong}
    assert own_console.visitor().post("s/0/operations", values).status in (400, 404)


def test_a_server_that_lists_no_jobs() -> None:
    """Those near the heads of the queues would not be all that match."""
    with reference() as server, console(server) as running:
        wrong = {"kind": "delete", "dry_run": True, "filter": {"tube": "default"}}
        reply = running.visitor().post("s/0/operations", wrong)
        assert reply.status == 400
        assert "cannot list the jobs of default" in reply.json["error"]


def test_redrive_by_shape(admin: Visitor, wire: Client, name: str) -> None:
    for body in (b"mail to 17", b"mail to 4", b'{"a": "x"}'):
        job = wire.put(body)
        wire.ask(b"reserve-job %d\r\n" % job)
        wire.ask(b"bury %d 10\r\n" % job)
    groups = admin.ok("s/0/dead-letters", tube=name)
    assert (groups["scanned"], groups["total"]) == (3, 3)
    shapes = {one["shape"]: one["count"] for one in groups["groups"]}
    assert shapes["mail to #"] == 2
    assert admin.dry_run("redrive", tube=name, shape="mail to #")["count"] == 2
    assert admin.run("redrive", tube=name, shape="mail to #")["done"] == 2
    assert admin.ok("s/0/dead-letters", tube=name)["total"] == 1


def test_redrive_of_jobs_with_distant_ids(admin: Visitor, wire: Client, name: str) -> None:
    """C beanstalkd lists no jobs, and only those near the first buried one can be found."""
    jobs = fill(wire, 900)
    for job in (far := jobs[::15]):
        wire.ask(b"reserve-job %d\r\n" % job)
        wire.ask(b"bury %d 10\r\n" % job)
    delayed = int(wire.ask(b"put 0 1000 60 1\r\nx\r\n").split()[1])
    assert admin.dry_run("redrive", tube=name)["count"] == 60
    assert admin.run("redrive", tube=name)["done"] == 60
    assert set(states(wire, far)) == {"ready"}
    assert states(wire, [delayed]) == ["delayed"]


@pytest.mark.slow
def test_redrive_at_a_rate(admin: Visitor, wire: Client, name: str) -> None:
    jobs = bury(wire, 60)
    begun = time.monotonic()
    done = admin.run("redrive", tube=name, rate=20)
    took = time.monotonic() - begun
    assert done["done"] == 60
    assert set(states(wire, jobs)) == {"ready"}
    assert 2.5 < took < 4.5, took


@pytest.mark.parametrize("kind", ["redrive", "move"])
def test_stop(admin: Visitor, wire: Client, name: str, log: Path, kind: str) -> None:
    jobs = bury(wire, 20)
    extra = {"to": f"{name}-to", "states": ["buried"]} if kind == "move" else {}
    # The next job is due in minutes; a stop does not wait for it.
    operation = admin.begin(kind, tube=name, rate=0.01, **extra)
    assert operation["ended"] is None
    assert operation["can_stop"]
    assert eventually(lambda: admin.operation(operation["id"])["done"] == 1)
    assert admin.post(f"s/0/operations/{operation['id']}/stop", {}).status == 200
    done = admin.ended(operation["id"], 2.0)
    assert (done["done"], done["total"], done["error"]) == (1, 20, None)
    assert states(wire, jobs).count("buried") == 19
    assert eventually(lambda: entries(log)[-1]["outcome"] == "stopped")
    stop = entries(log)[-2]
    assert (stop["action"], stop["user"], stop["arguments"]["operation"]) == (
        *("stop", "admin"),
        operation["id"],
    )
    assert admin.post(f"s/0/operations/{operation['id']}/stop", {}).status == 400
    assert admin.post("s/0/operations/987654/stop", {}).status == 400


def test_a_repeated_state_counts_once(admin: Visitor, wire: Client, name: str) -> None:
    fill(wire)
    for kind, extra in (("truncate", {}), ("move", {"to": f"{name}-to"})):
        plan = admin.dry_run(kind, tube=name, states=["ready", "ready"], **extra)
        assert plan["count"] == JOBS


@pytest.mark.parametrize("states_of_jobs", [["ready", "delayed", "buried"], ["ready"]])
def test_truncate_leaves_other_states(
    admin: Visitor, wire: Client, name: str, states_of_jobs: list[str]
) -> None:
    ready = fill(wire)
    buried = bury(wire, 2)
    done = admin.run("truncate", tube=name, states=states_of_jobs)
    assert (done["error"], done["done"]) == (None, done["total"])
    assert not [state for state in states(wire, ready) if state == "ready"]
    gone = "buried" in states_of_jobs
    assert states(wire, buried) == (["gone"] * 2 if gone else ["buried"] * 2)


def test_export_and_import(admin: Visitor, wire: Client, name: str, either: Server) -> None:
    """The same lines as the command's; what was exported can be imported by either."""
    fill(wire, 150)
    bury(wire, 2)
    wire.ask(b"put 7 1000 60 2\r\n\xff\n\r\n")
    wire.ask(b"reserve-with-timeout 0\r\n")
    exported = admin.get("s/0/jobs/export", tube=name)
    assert exported.status == 200
    assert exported.headers["Content-Disposition"] == "attachment"
    operator = Operator(f"127.0.0.1:{either.port}")
    lines = [json.loads(line) for line in exported.body.splitlines()]
    assert len(lines) == 152
    for mine, of_command in zip(lines, operator.do("export", name).json_lines, strict=True):
        assert abs(mine.pop("delay") - of_command.pop("delay")) <= 2
        assert mine == of_command
    target = f"{name}-imported"
    done = admin.run("import", tube=target, lines=exported.body.decode())
    assert (done["error"], done["done"], done["total"]) == (None, 152, 152)
    imported = operator.do("export", target).json_lines
    keys = ("state", "pri", "ttr", "body", "body_base64")
    assert [[one.get(key) for key in keys] for one in imported] == [
        [one.get(key) for key in keys] for one in lines
    ]


def test_a_stopped_import_continues(admin: Visitor, wire: Client, name: str) -> None:
    bodies = [f"{number}" for number in range(30_000)]
    lines = "".join(f'{{"body": "{one}"}}\n\n' for one in bodies)
    operation = admin.begin("import", tube=name, lines=lines)
    if operation["ended"] is None:
        admin.post(f"s/0/operations/{operation['id']}/stop", {})
    done = admin.ended(operation["id"])
    rest = done["text"].rpartition("; to continue, skip ")[2]
    if rest.isdigit():
        done = admin.run("import", tube=name, lines=lines, skip=int(rest))
    assert done["error"] is None
    found = wire.stats(b"stats-tube %b" % name.encode())
    assert found["total-jobs"] == str(len(bodies)), "each once"


def test_an_import_that_the_server_refuses(tmp_path: Path) -> None:
    config = tmp_path / "policies.toml"
    config.write_text('[tube."*"]\nmax-jobs = 50\n')
    with ours("--config", config) as server, console(server) as running:
        lines = '{"body": "x"}\n' * 100
        done = running.visitor().run("import", tube="full", lines=lines)
    assert "line 51" in done["error"] and done["error"].endswith("to continue, skip 50")
    assert done["done"] == 50


def test_an_export_ends_with_the_session(
    beside: ConsoleProcess, admin: Visitor, wire: Client, name: str
) -> None:
    """The reply has no end then, so that nobody takes the file for complete."""
    for _ in range(400):
        wire.put(b"x" * 60_000)
    visitor = beside.user("operate")
    download = http.client.HTTPConnection("127.0.0.1", visitor.port, timeout=20)
    with contextlib.closing(download):
        download.request("GET", f"/api/s/0/jobs/export?tube={name}", headers=visitor.headers)
        response = download.getresponse()
        assert response.status == 200 and len(response.read(60_000)) == 60_000
        assert visitor.post("logout", {}).status == 200
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
    assert len(admin.get("s/0/jobs/export", tube=name).body) > 400 * 60_000


def test_the_number_of_exports_is_bounded(
    beside: ConsoleProcess, admin: Visitor, wire: Client, name: str
) -> None:
    for _ in range(400):
        wire.put(b"x" * 60_000)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_EXPORTS):
            download = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
            stack.callback(download.close)
            download.request("GET", f"/api/s/0/jobs/export?tube={name}", headers=admin.headers)
            assert download.getresponse().status == 200
        assert admin.get("s/0/jobs/export", tube=name).status == 503
    assert eventually(lambda: admin.get("s/0/jobs/export", tube=name).status == 200)


def test_export_of_a_tube_that_does_not_exist(admin: Visitor) -> None:
    assert admin.get("s/0/jobs/export", tube="no-such-tube").status == 404
    assert admin.get("s/0/jobs/export", tube="no tube").status == 400


def test_an_invalid_line_imports_nothing(admin: Visitor, wire: Client, name: str) -> None:
    for wrong in ('{"body": 1}', "[" * 100_000):
        values = {"kind": "import", "tube": name, "lines": f'{{"body": "a"}}\n{wrong}\n'}
        for dry_run in (True, False):
            answer = admin.post("s/0/operations", {**values, "dry_run": dry_run})
            assert answer.status == 400
            assert "line 2" in answer.error
    assert wire.stats(b"stats-tube %b" % name.encode())["total-jobs"] == "0"


def test_where_to_continue_after_a_refused_line(admin: Visitor, wire: Client, name: str) -> None:
    too_big = json.dumps({"body": "x" * 70_000})
    lines = f'{{"body": "a"}}\n{{"body": "b"}}\n{too_big}\n{{"body": "d"}}\n'
    done = admin.run("import", tube=name, lines=lines)
    assert "line 3" in done["error"] and done["error"].endswith("put 2 jobs; to continue, skip 2")
    assert done["done"] == 2
    done = admin.run("import", tube=name, lines=lines, skip=3)
    assert (done["error"], done["done"]) == (None, 1)
    assert [state for state in tube_state(wire, name) if "current-jobs-ready: 3" in state]


FAILING: dict[str, Arguments] = {
    "kick": {"tube": "no-such-tube", "count": 1},
    "pause": {"tube": "no-such-tube", "seconds": 1},
    "move": {"tube": "no-such-tube", "to": "x"},
    "truncate": {"tube": "no-such-tube"},
    "redrive": {"tube": "no-such-tube", "shape": "x"},
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_tube_that_does_not_exist(admin: Visitor, kind: str) -> None:
    for dry_run in (True, False):
        values = {"kind": kind, "dry_run": dry_run, **FAILING[kind]}
        answer = admin.post("s/0/operations", values)
        assert answer.status == 404
        assert "no-such-tube" in answer.error


def test_a_failure_is_in_the_audit_log(admin: Visitor, name: str, log: Path) -> None:
    logged = len(entries(log))
    done = admin.run("put", tube=name, body="x" * 70_000)
    assert "max-job-size" in done["error"]
    assert done["done"] == 0
    assert eventually(lambda: len(entries(log)) == logged + 2)
    assert [one["outcome"] for one in entries(log)[-2:]] == ["begun", done["error"]]


def test_the_audit_page(admin: Visitor, name: str, log: Path) -> None:
    admin.run("put", tube=name, body="x")
    assert eventually(lambda: entries(log)[-1]["outcome"] == "done")
    page = admin.ok("audit")["entries"]
    names = ("at", "user", "address", "server", "action", "before", "after", "outcome")
    shown = [[one[name] for name in names] for one in page]
    assert shown == [[one[name] for name in names] for one in entries(log)[::-1][:100]]
    assert page[0] == entries(log)[-1]
    assert admin.ok("audit", before=page[0]["at"])["entries"][0] == page[1]
    assert admin.ok("audit", before=0)["entries"] == []


def test_operations_are_listed_newest_first(admin: Visitor, name: str) -> None:
    for number in range(3):
        admin.run("put", tube=name, body=f"{number}")
    found = admin.ok("s/0/operations")["operations"]
    assert [one["arguments"]["body"] for one in found[:3]] == ["2", "1", "0"]
    assert len(found) <= 50


def test_an_old_operation_that_runs_is_listed(admin: Visitor, wire: Client, name: str) -> None:
    bury(wire, 3)
    slow = admin.begin("redrive", tube=name, rate=0.01)["id"]
    for number in range(60):
        admin.run("put", tube=f"{name}-2", body=f"{number}")
    found = admin.ok("s/0/operations")["operations"]
    assert [one["id"] for one in found[:50]] == sorted(one["id"] for one in found[:50])[::-1]
    assert (found[-1]["id"], found[-1]["ended"], len(found)) == (slow, None, 51)
    assert admin.post(f"s/0/operations/{slow}/stop", {}).status == 200

    def ids() -> list[int]:
        return [one["id"] for one in admin.ok("s/0/operations")["operations"]]

    assert eventually(lambda: slow not in ids())


def test_long_arguments_are_cut_off_for_viewers(admin: Visitor, name: str, log: Path) -> None:
    admin.run("put", tube=name, body="x" * 50_000)
    admin.run("delete", ids=list(range(10**9, 10**9 + 5000)))
    assert len(admin.get("s/0/operations").body) < 100_000
    assert eventually(lambda: entries(log)[-1]["outcome"] == "done")
    assert len(entries(log)[-1]["arguments"]["ids"]) == 5000, "the audit log has all"


def test_the_audit_log_has_the_begin_of_a_file(admin: Visitor, name: str, log: Path) -> None:
    lines = '{"body": "x"}\n' * 20_000
    done = admin.run("import", tube=name, lines=lines)
    assert done["done"] == 20_000
    assert eventually(lambda: entries(log)[-1]["outcome"] == "done")
    assert lines.startswith(entries(log)[-1]["arguments"]["lines"])
    assert len(entries(log)[-1]["arguments"]["lines"]) == 1 << 16


def test_two_users_at_once(beside: ConsoleProcess, wire: Client, name: str) -> None:
    """Each job is changed once, and each operation counts its own changes."""
    jobs = fill(wire, 300)
    both = [beside.user("operate"), beside.user("admin")]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda one: one.run("delete", ids=jobs), both))
    assert sum(one["done"] for one in done) == 300
    assert {one["user"] for one in done} == {"operate", "admin"}
    assert set(states(wire, jobs)) == {"gone"}


def test_the_number_of_operations_is_bounded(admin: Visitor, wire: Client, name: str) -> None:
    bury(wire, 2 * MOST_RUNNING)
    begun = [admin.begin("redrive", tube=name, rate=0.01)["id"] for _ in range(MOST_RUNNING)]
    answer = admin.post("s/0/operations", {"kind": "put", "tube": name, "body": "x"})
    assert (answer.status, "stop one" in answer.error) == (400, True)
    for number in begun:
        admin.post(f"s/0/operations/{number}/stop", {})
    for number in begun:
        admin.ended(number)
    assert admin.run("put", tube=name, body="x")["error"] is None


def test_two_moves_into_one_tube(beside: ConsoleProcess, wire: Client, name: str) -> None:
    fill(wire, 50)
    first = beside.user("operate").begin("move", tube=name, to=f"{name}-to", rate=1)
    second = beside.user("admin").run("move", tube=name, to=f"{name}-to")
    assert second["error"]
    admin = beside.user("admin")
    admin.post(f"s/0/operations/{first['id']}/stop", {})
    admin.ended(first["id"])


def test_a_killed_move_is_completed(
    either: Server, wire: Client, name: str, tmp_path: Path
) -> None:
    """A console killed during a move loses no job and doubles none."""
    log, count = tmp_path / "audit", 400
    fill(wire, count)
    with console(either, args=("--audit-log", log)) as running:
        running.visitor().begin("move", tube=name, to=f"{name}-to", rate=500)
        time.sleep(0.3)
        running.kill()
    assert [one["outcome"] for one in entries(log)] == ["begun"]
    with console(either, args=("--audit-log", log)) as running:
        visitor = running.visitor()
        assert visitor.ok("audit")["entries"][0]["action"] == "move", "the log is read again"
        done = visitor.run("move", tube=name, to=f"{name}-to")
        assert done["error"] is None
    operator = Operator(f"127.0.0.1:{either.port}")
    bodies = Counter(row["body"] for row in operator.do("export", f"{name}-to").json_lines)
    assert bodies == Counter(f"job {number}" for number in range(count))


def test_the_end_of_the_console_stops_operations(
    either: Server, wire: Client, name: str, tmp_path: Path
) -> None:
    jobs = bury(wire, 20)
    with console(either, args=("--audit-log", tmp_path / "log")) as running:
        running.visitor().begin("redrive", tube=name, rate=0.01)
        assert running.stop() == 0
    assert [one["outcome"] for one in entries(tmp_path / "log")] == ["begun", "stopped"]
    assert states(wire, jobs).count("buried") == 19


def test_a_part_of_a_line_in_the_audit_log(
    either: Server, wire: Client, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"user": "a')
    with console(either, args=("--audit-log", log)) as running:
        running.visitor().run("put", tube=name, body="x")
        assert len(running.visitor().ok("audit")["entries"]) == 2
    assert log.read_bytes().splitlines()[0] == b'{"user": "a'
    assert [json.loads(line)["outcome"] for line in log.read_bytes().splitlines()[1:]] == [
        "begun",
        "done",
    ]


def test_nothing_changes_without_an_audit_log(either: Server, wire: Client, name: str) -> None:
    """A full disk refuses operations, because their entries cannot be written before."""
    jobs = fill(wire, 1)
    with console(either, args=("--audit-log", "/dev/full")) as running:
        answer = running.visitor().post("s/0/operations", {"kind": "delete", "ids": jobs})
        assert (answer.status, "space" in answer.error) == (500, True)
    assert states(wire, jobs) == ["ready"]


# --- the server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("own")
    with ours("-b", folder) as running:
        yield running


@pytest.fixture(scope="module")
def own_console(own: Server) -> Iterator[ConsoleProcess]:
    with console(own) as running:
        yield running


def test_drain(own: Server, own_console: ConsoleProcess) -> None:
    visitor = own_console.visitor()
    with own.connect() as client:
        assert "accepted now" in visitor.dry_run("drain", on=True)["text"]
        assert client.ask(b"put 0 0 1 1\r\nx\r\n").startswith(b"INSERTED")
        assert visitor.run("drain", on=True)["text"] == "New jobs are refused"
        assert client.ask(b"put 0 0 1 1\r\nx\r\n") == b"DRAINING\r\n"
        visitor.run("drain", on=False)
        assert client.ask(b"put 0 0 1 1\r\nx\r\n").startswith(b"INSERTED")


def test_compact_and_reload(own_console: ConsoleProcess) -> None:
    visitor = own_console.visitor()
    for kind in ("compact", "reload"):
        assert visitor.dry_run(kind)["count"] == 1
        done = visitor.run(kind)
        assert (done["error"], done["done"]) == (None, 1)


def test_policies(own: Server, own_console: ConsoleProcess) -> None:
    visitor = own_console.visitor()
    policy = {"tube": "limited*", "max-jobs": 1}
    assert "limited*" in visitor.dry_run("policy-set", policy=policy)["text"]
    assert visitor.ok("s/0/policies")["policies"] == []
    visitor.run("policy-set", policy=policy)
    assert visitor.ok("s/0/policies")["policies"] == [{**policy, "from": "online"}]
    with in_tube(own.connect(), b"limited-1") as client:
        client.put(b"x")
        view = visitor.ok("s/0/tubes/limited-1")
        assert view["policy"] == {**policy, "from": "online"}
    assert "now max-jobs 1" in visitor.dry_run("policy-set", policy=policy)["text"]
    assert "now max-jobs 1" in visitor.dry_run("policy-unset", pattern="limited*")["text"]
    assert len(visitor.ok("s/0/policies")["policies"]) == 1
    visitor.run("policy-unset", pattern="limited*")
    assert visitor.ok("s/0/policies")["policies"] == []
    unset = {"kind": "policy-unset", "pattern": "limited*"}
    assert visitor.post("s/0/operations", unset).status == 404
    for wrong in ({"tube": "x", "max-jobs": -1}, {"tube": "x", "no-such": 1}, {"tube": "a b"}, {}):
        values = {"kind": "policy-set", "dry_run": True, "policy": wrong}
        assert visitor.post("s/0/operations", values).status == 400


SCHEDULES = '[schedule.report]\ncron = "0 3 1 1 *"\ntube = "reports"\nbody = "x"\n'


def test_schedules(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(SCHEDULES)
    with (
        ours("-b", tmp_path, "--config", tmp_path / "config.toml") as server,
        console(server) as running,
    ):
        visitor = running.visitor()
        (found,) = visitor.ok("s/0/schedules")["schedules"]
        assert (found["name"], found["puts"]) == ("report", 0)
        assert visitor.dry_run("schedule-run", name="report")["count"] == 1
        assert visitor.ok("s/0/schedules")["schedules"][0]["puts"] == 0
        assert visitor.run("schedule-run", name="report")["error"] is None
        assert len(visitor.ok("s/0/jobs", tube="reports")["jobs"]) == 1
        values = {"kind": "schedule-run", "name": "no-such"}
        assert visitor.post("s/0/operations", values).status == 404


def test_every_kind_is_tested() -> None:
    of_other_files = {"replay", "undelete"}
    others = {"drain", "compact", "reload", "policy-set", "policy-unset", "schedule-run"}
    assert {case.split()[0] for case in CASES} | others | of_other_files == KINDS.keys()


def test_an_operation_is_shown_before_its_first_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def run(target: Target, arguments: Mapping[str, object], progress: Progress) -> str:
        gevent.sleep(0.5)
        return "done"

    kind = Kind(Role.OPERATE, frozenset(), lambda target, arguments: Plan(1, "slow"), run)
    monkeypatch.setitem(cast(dict[str, Kind], KINDS), "slow", kind)
    target = Target(Address("127.0.0.1", 1))
    operations = Operations(target, AuditLog(None), lambda one: shown.append(one.ended))
    operation = operations.begin("slow", {}, Caller("ann", "127.0.0.1"))
    assert shown == [None]
    gevent.sleep(0.5)
    assert shown == [None, operation.ended]


def test_a_server_that_ends_during_an_operation(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with ours() as server, console(server, args=("--audit-log", log)) as running:
        with in_tube(server.connect(), b"ends") as client:
            bury(client, 200)
        visitor = running.visitor()
        number = visitor.begin("redrive", tube="ends", rate=10)["id"]
        assert eventually(lambda: visitor.operation(number)["done"] > 0)
        server.kill()
        done = visitor.ended(number)
        assert done["error"]
        assert done["text"].endswith(f" {done['done']} done before the error")
        assert eventually(lambda: entries(log)[-1]["outcome"] == done["error"])
        assert visitor.get("s/0/jobs", tube="ends").status == 503
        assert (
            visitor.post("s/0/operations", {"kind": "kick", "tube": "ends", "count": 1}).status
            == 503
        )
