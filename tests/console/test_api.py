"""What a console returns about servers: shapes, filters, names, bodies, history and timelines."""

from __future__ import annotations

import base64
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gevent
import pytest
from console.consoles import Visitor, console
from history.finished import finished, make_store
from processes import eventually, slowness
from servers import Server, ours, reference
from shards import TUBES, TWO
from wire import in_tube

from beanstalkd_py.admin.address import parse_address
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.views import examination, jobs
from beanstalkd_py.console.views.bodies import shape_of
from beanstalkd_py.console.views.examination import FindingView

pytestmark = pytest.mark.costly
STARTERS = {"ours": (ours, ()), "ours-2": (ours, TWO), "C": (reference, ())}
OURS = pytest.mark.parametrize("place", ["ours", "ours-2"], indirect=True)
ONLY_C = pytest.mark.parametrize("place", ["C"], indirect=True)
HOSTILE_TUBES = ("a/b;c$d(e)", "/x", "/", "a//b", "a/", ".", "a.b", "a+b", "..x", "x" * 200)
NUMBERS = (int, float)
EXAMINATION_S = 60.0
PNG = b"\x89PNG\r\n\x1a\n\0\xff"


@dataclass(frozen=True)
class Place:
    """A server, and a console beside it. `kind` is a key of STARTERS."""

    kind: str
    server: Server
    visitor: Visitor

    @property
    def is_ours(self) -> bool:
        return self.kind != "C"


@pytest.fixture(scope="module", params=list(STARTERS))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    start, args = STARTERS[request.param]
    with start(*args) as server, console(server) as running:
        yield Place(request.param, server, running.visitor())


@pytest.fixture
def name(tube: bytes) -> str:
    return f"{tube.decode()}-api"


def put(server: Server, tube: str, *bodies: bytes, pri: int = 10, delay: int = 0) -> list[int]:
    with in_tube(server.connect(), tube.encode()) as client:
        commands = (b"put %d %d 60 %d\r\n%b\r\n" % (pri, delay, len(one), one) for one in bodies)
        return [int(client.ask(one).split()[1]) for one in commands]


def check(value: object, shape: object, path: str = "") -> None:
    """Compare with types, tuples of types, lists of one shape, and dicts of names to shapes."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), path
        assert value.keys() == shape.keys(), path
        for key, one in shape.items():
            check(value[key], one, f"{path}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), path
        for one in value:
            check(one, shape[0], f"{path}[]")
    elif isinstance(shape, tuple) and dict in map(type, shape):
        if value is not None:
            check(value, shape[0], path)
    else:
        assert isinstance(value, shape), (path, value)  # type: ignore[arg-type]


NONE = type(None)
BODY = {"text": (str, NONE), "base64": (str, NONE), "size": int, "truncated": bool}
JOB_NUMBERS = "id pri age delay ttr time_left reserves timeouts releases buries kicks bytes"
CONNECTION = {
    "id": str,
    "address": str,
    "used": str,
    "watched": [str],
    "watching": int,
    "waiting": bool,
    "waits_s": (*NUMBERS, NONE),
    "reserved": [int],
    "holds": int,
    "worker": int,
    "unread_bytes": int,
    "unsent_bytes": int,
}
EVENT = {"at": (*NUMBERS, NONE), "event": str, "text": str}
SHAPES: dict[str, Any] = {
    "samples": {
        "interval_s": NUMBERS,
        "at": [float],
        **{name: [(*NUMBERS, NONE)] for name in ("puts", "reserves", "deletes")},
        **{name: [(*NUMBERS, NONE)] for name in ("queue_p50", "queue_p99", "sync_p99")},
        **{name: [int] for name in ("ready", "reserved", "delayed", "buried")},
    },
    "jobs": {
        "jobs": [{**dict.fromkeys(JOB_NUMBERS.split(), int), "state": str}],
        "next": int,
        "exact": bool,
    },
    "dead-letters": {
        "tubes": [{"tube": str, "buried": int}],
        "groups": [
            {"shape": str, "count": int, "ids": [int], "example": BODY, "oldest_s": NUMBERS}
        ],
        "scanned": int,
        "total": int,
    },
    "connections": {"connections": [CONNECTION]},
    "operations": {"operations": [dict]},
    "policies": {"policies": [dict]},
    "schedules": {"schedules": [dict]},
    "replication": {"replication": (dict, NONE)},
    "binlog": {
        "workers": (list, NONE),
        "binlog": dict,
        "disk": (dict, NONE),
        "history": (dict, NONE),
    },
    "doctor": {
        "findings": [{"check": str, "level": str, "text": str, "remedy": str}],
        "at": (*NUMBERS, NONE),
        "running": bool,
    },
}


@pytest.mark.parametrize("path", SHAPES)
def test_shapes(place: Place, name: str, path: str) -> None:
    jobs = put(place.server, name, b"first", PNG)
    with in_tube(place.server.connect(), name.encode()) as client:
        client.ask(b"reserve-job %d\r\n" % jobs[0])
        client.ask(b"bury %d 1\r\n" % jobs[0])
        client.ask(b"reserve\r\n")
        query = {"tube": name} if path in ("jobs", "dead-letters", "connections") else {}
        answer = place.visitor.get(f"s/0/{path}", **query)
    if path in ("connections", "schedules") and not place.is_ours:
        assert answer.status == 503
        assert "control socket" in answer.error
        return
    assert answer.status == 200, answer
    check(answer.json, SHAPES[path])
    if path in ("jobs", "dead-letters", "connections"):
        assert any(answer.json.values()), "something to compare"
    if path == "jobs":
        assert answer.json["exact"] == place.is_ours


def test_doctor(place: Place) -> None:
    path = "s/0/doctor"

    def examined() -> dict[str, Any]:
        assert eventually(lambda: not place.visitor.ok(path)["running"], EXAMINATION_S)
        found: dict[str, Any] = place.visitor.ok(path)
        return found

    first = examined()
    assert {one["level"] for one in first["findings"]} <= {"ok", "advice", "problem", "unknown"}
    assert examined() == first, "a page that only looks begins no other one"
    assert place.visitor.post(path, {}).status == 200
    assert examined()["at"] > first["at"]


def test_one_examination_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds; a view of it does not wait."""
    calls: list[Target] = []
    go_on = threading.Event()

    def examine(target: Target) -> list[FindingView]:
        calls.append(target)
        assert go_on.wait(EXAMINATION_S)
        return [FindingView("disk", "ok", "fast", "")]

    monkeypatch.setattr(examination, "found_about", examine)
    shared = examination.Examination(Target(parse_address("127.0.0.1:1")))
    for _ in range(3):
        shared.begin()
        assert shared.view() == examination.ExaminationView((), None, True)
        gevent.sleep(0.01)
    go_on.set()
    with gevent.Timeout(EXAMINATION_S):
        while shared.view().running:
            gevent.sleep(0.01)
    assert [one.check for one in shared.view().findings] == ["disk"]
    assert len(calls) == 1


def test_a_failure_of_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported to the next viewer, and another examination can begin."""

    def fail(target: Target) -> list[FindingView]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(examination, "found_about", fail)
    failing = examination.Examination(Target(parse_address("127.0.0.1:1")))
    assert failing.view() == examination.ExaminationView((), None, True)
    gevent.sleep(0.2)
    with pytest.raises(OSError, match="Input/output error"):
        failing.view()
    assert failing.view().running


def test_a_tube(place: Place, name: str) -> None:
    put(place.server, name, b"x")
    view = place.visitor.ok(f"s/0/tubes/{name}")
    check(view, {"stats": dict, "policy": (dict, NONE), "oldest_ready_s": (*NUMBERS, NONE)})
    assert view["stats"]["current-jobs-ready"] == "1"
    assert view["policy"] is None
    assert (view["oldest_ready_s"] is not None) == place.is_ours
    assert place.visitor.get("s/0/tubes/no-such-tube").status == 404


@pytest.mark.parametrize("tube", HOSTILE_TUBES)
def test_names_of_tubes(place: Place, tube: str) -> None:
    job = put(place.server, tube, b"x")[0]
    view = place.visitor.ok(f"s/0/tubes/{quote(tube, safe='')}")
    assert view["stats"]["name"] == tube
    listed = place.visitor.ok("s/0/jobs", tube=tube)
    assert [one["id"] for one in listed["jobs"]] == [job]
    # A list-jobs of a long name does not fit into a line.
    assert listed["exact"] == (place.is_ours and len(tube) < 200)
    assert place.visitor.ok("s/0/dead-letters", tube=tube)["groups"] == []
    assert place.visitor.run("put", tube=tube, body="y")["error"] is None
    assert place.visitor.run("truncate", tube=tube)["done"] == 2


def test_tubes_of_other_workers(place: Place) -> None:
    for tube in TUBES:
        name = tube.decode() + "-there"
        job = put(place.server, name, b"x")[0]
        assert place.visitor.ok("s/0/jobs", tube=name)["jobs"][0]["id"] == job
        assert place.visitor.ok(f"s/0/jobs/{job}")["stats"]["tube"] == name


# --- lists of jobs -------------------------------------------------------------------------------


def listed(visitor: Visitor, limit: int = 500, **query: object) -> list[dict[str, Any]]:
    """Return the jobs of all pages."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        page = visitor.ok("s/0/jobs", limit=limit, after=after, **query)
        assert len(page["jobs"]) <= limit
        assert page["next"] == 0 or page["next"] > after
        found += page["jobs"]
        after = page["next"]
        if after == 0:
            return found


@pytest.fixture(scope="module")
def many(place: Place) -> tuple[str, dict[int, bytes]]:
    """A tube with jobs in all states, by their ids."""
    tube, bodies = "many-jobs", {}
    with in_tube(place.server.connect(), tube.encode()) as client:
        for number in range(260):
            body = b"order %d %s" % (number, b"urgent" if number % 7 == 0 else PNG)
            delay = 1000 if number % 3 == 0 else 0
            head = b"put %d %d 60 %d\r\n" % (number % 5, delay, len(body))
            job = int(client.ask(head + body + b"\r\n").split()[1])
            bodies[job] = body
            if number % 4 == 1:
                client.ask(b"reserve-job %d\r\n" % job)
                client.ask(b"bury %d %d\r\n" % (job, number % 5))
    return tube, bodies


@OURS
@pytest.mark.parametrize("limit", [7, 100, 500])
def test_pages_are_the_whole_list(
    place: Place, many: tuple[str, dict[int, bytes]], limit: int
) -> None:
    tube, bodies = many
    everything = listed(place.visitor, tube=tube)
    assert [one["id"] for one in everything] == sorted(bodies)
    assert [one["bytes"] for one in everything] == [len(bodies[one["id"]]) for one in everything]
    paged = listed(place.visitor, limit, tube=tube)
    assert [one["id"] for one in paged] == [one["id"] for one in everything]
    filters: list[tuple[dict[str, object], Any]] = [
        ({"state": "buried"}, lambda one: one["state"] == "buried"),
        ({"state": "ready"}, lambda one: one["state"] == "ready"),
        ({"state": "delayed"}, lambda one: one["state"] == "delayed"),
        ({"state": "reserved"}, lambda one: False),
        ({"min_pri": 2, "max_pri": 3}, lambda one: 2 <= one["pri"] <= 3),
        ({"max_age": 10_000}, lambda one: True),
        ({"min_age": 10_000}, lambda one: False),
        ({"body": "urgent"}, lambda one: b"urgent" in bodies[one["id"]]),
        ({"body": "order 13"}, lambda one: b"order 13" in bodies[one["id"]]),
        (
            {"state": "ready", "body": "urgent", "max_pri": 1},
            lambda one: (
                one["state"] == "ready" and one["pri"] <= 1 and b"urgent" in bodies[one["id"]]
            ),
        ),
    ]
    for query, matches in filters:
        found = [one["id"] for one in listed(place.visitor, limit, tube=tube, **query)]
        assert found == [one["id"] for one in everything if matches(one)], query


@ONLY_C
def test_c_lists_jobs_near_the_heads(place: Place, many: tuple[str, dict[int, bytes]]) -> None:
    tube, bodies = many
    page = place.visitor.ok("s/0/jobs", tube=tube, limit=500)
    assert not page["exact"]
    assert {one["id"] for one in page["jobs"]} <= bodies.keys()
    assert {one["state"] for one in page["jobs"]} == {"ready", "delayed", "buried"}
    few = place.visitor.ok("s/0/jobs", tube=tube, state="buried", body="urgent")["jobs"]
    assert all(b"urgent" in bodies[one["id"]] and one["state"] == "buried" for one in few)


# --- dead letters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (b"mail to ann@example.com, 17 times", "mail to @, # times"),
        (b"id 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "id #"),
        (
            b'{"to": "ann", "n": [1, 2], "flag": true}',
            '{"to": "\u2026", "n": [#, #], "flag": true}',
        ),
        (PNG, "binary"),
        (b"", ""),
    ],
)
def test_shapes_of_bodies(body: bytes, shape: str) -> None:
    assert shape_of(body) == shape


@pytest.mark.parametrize(
    "part",
    [b"a", b"a.", b"a@", b"1a", b'"', b':"', b',"', b'\\"', b"[ ", b": ", b"\xc3\xa4", b"-", b"@."],
)
def test_shapes_of_hostile_bodies(part: bytes) -> None:
    """Thousands of bodies are looked at for a page, so none may take milliseconds."""
    begun = time.thread_time()
    for ending in (b"", b'"', b"@", b":"):
        shape_of((part * 4096)[:4090] + ending)
    took_s = time.thread_time() - begun
    assert took_s < 0.06 * slowness()


# --- one job -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text",
        "ä€😀".encode(),
        PNG,
        b"\0\r\n",
        b"a" * 65_535,
        ("ä" * 32_767).encode(),
        PNG * 5000,
    ],
)
def test_bodies(place: Place, name: str, body: bytes) -> None:
    job = put(place.server, name, body)[0]
    view = place.visitor.ok(f"s/0/jobs/{job}")
    check(view["body"], BODY)
    assert view["body"]["size"] == len(body)
    text, encoded = view["body"]["text"], view["body"]["base64"]
    assert (text is None) != (encoded is None)
    shown = text.encode() if text is not None else base64.b64decode(encoded)
    assert body.startswith(shown)
    assert view["body"]["truncated"] == (shown != body)


def test_long_bodies(tmp_path: Path) -> None:
    with ours("-z", str(1 << 20)) as server, console(server) as running:
        for body in (b"x" * 200_000, ("x" + "ä" * 100_000).encode(), PNG * 20_000):
            job = put(server, "long", body)[0]
            shown = running.visitor().ok(f"s/0/jobs/{job}")["body"]
            assert (shown["size"], shown["truncated"]) == (len(body), True)
            part = (shown["text"] or "").encode() or base64.b64decode(shown["base64"])
            assert 65_000 < len(part) <= 65_536
            assert body.startswith(part)


def test_a_live_job(place: Place, name: str) -> None:
    job = put(place.server, name, b"x")[0]
    with in_tube(place.server.connect(), name.encode()) as client:
        client.ask(b"reserve\r\n")
        view = place.visitor.ok(f"s/0/jobs/{job}")
        check(view["timeline"], [EVENT])
        assert view["live"]
        assert view["history"] is None
        assert view["stats"]["state"] == "reserved"
        assert [one["event"] for one in view["timeline"]] == ["put", "reserve", "reserved"]
        assert abs(view["timeline"][0]["at"] - time.time()) < 5
        if place.is_ours:
            check(view["holder"], CONNECTION)
            assert view["holder"]["reserved"] == [job]
            assert view["holder"]["address"].endswith(f":{client.port}")
            found = place.visitor.ok("s/0/connections", tube=name)["connections"]
            assert [one["address"] for one in found] == [view["holder"]["address"]]
        else:
            assert view["holder"] is None
    assert place.visitor.get("s/0/jobs/123456789012").status == 404


def test_waiting_and_many_connections(tmp_path: Path) -> None:
    with ours() as server, console(server) as running:
        clients = [in_tube(server.connect(), b"crowd") for _ in range(30)]
        clients[7].send(b"reserve-with-timeout 100\r\n")
        job = put(server, "other", b"x")[0]
        clients[9].ask(b"reserve-job %d\r\n" % job)
        visitor = running.visitor()
        found = visitor.ok("s/0/connections", tube="crowd")["connections"]
        assert len(found) == 30
        assert found[0]["reserved"] == [job]
        assert found[1]["waiting"]
        assert 90 < found[1]["waits_s"] <= 100
        assert len(visitor.ok("s/0/connections", limit=5)["connections"]) == 5
        for client in clients:
            client.close()


def test_connections_with_many_jobs_and_tubes() -> None:
    """A row has the first 16 jobs and 400 bytes of tube names. Nobody who may match is left out."""
    with ours() as server, console(server) as running:
        jobs = put(server, "many", *[b"x"] * 40)
        visitor = running.visitor()
        with in_tube(server.connect(), b"many") as client:
            for number in range(60):
                client.ask(b"watch other-tube-%d\r\n" % number)
            for job in jobs:
                client.ask(b"reserve-job %d\r\n" % job)
            address = f"127.0.0.1:{client.port}"
            for job in jobs:
                holder = visitor.ok(f"s/0/jobs/{job}")["holder"]
                assert (holder["address"], holder["holds"]) == (address, 40)
            for tube in ("other-tube-1", "other-tube-59"):
                (row,) = visitor.ok("s/0/connections", tube=tube)["connections"]
                assert (row["address"], row["watching"]) == (address, 61)
            free = put(server, "many", b"y")[0]
            assert visitor.ok(f"s/0/jobs/{free}")["holder"] is None


# --- history -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["1", "2"])
def historic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("historic")
    binlog, store = folder / "binlog", folder / "store"
    binlog.mkdir()
    with ours("-b", binlog, "--history", store, "--workers", request.param) as server:
        with in_tube(server.connect(), b"mails") as client:
            jobs = [client.put(b"mail %d" % number) for number in range(30)]
            other = put(server, "a/b;c$d(e)", PNG)[0]
            for job in [*jobs, other]:
                client.ask(b"reserve-job %d\r\n" % job)
                assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            live = client.put(b"alive")
        with console(server, args=("--history", store)) as running:
            visitor = running.visitor()

            def is_stored() -> bool:
                answer = visitor.get("s/0/history/topics")
                found = answer.json["topics"] if answer.status == 200 else []
                return sum(one["messages"] for one in found) == 31

            assert eventually(is_stored, 20)
            yield visitor, jobs, other, live


MESSAGE = {
    "offset": int,
    "stored": float,
    "tube": str,
    "key": str,
    "event": str,
    "properties": dict,
    "body": BODY,
}


def test_history(historic: Any) -> None:
    visitor, jobs, _, _ = historic
    topics = visitor.ok("s/0/history/topics")["topics"]
    check(topics, [{"tube": str, "messages": int, "first": float, "last": float}])
    assert {one["tube"]: one["messages"] for one in topics} == {"mails": 30, "a/b;c$d(e)": 1}
    page = visitor.ok("s/0/history/messages", tube="mails", limit=500)
    check(page, {"messages": [MESSAGE], "next": (int, NONE)})
    assert [int(one["key"]) for one in page["messages"]] == jobs[::-1]
    assert {one["event"] for one in page["messages"]} == {"deleted"}
    found, before = [], None
    while True:
        query = {} if before is None else {"before": before}
        page = visitor.ok("s/0/history/messages", tube="mails", limit=7, **query)
        found += [int(one["key"]) for one in page["messages"]]
        before = page["next"]
        if before is None:
            break
    assert found == jobs[::-1]
    assert len(visitor.ok("s/0/history/messages", limit=500)["messages"]) == 31
    one = visitor.ok("s/0/history/messages", tube="mails", key=str(jobs[4]))["messages"]
    assert [int(each["key"]) for each in one] == [jobs[4]]
    assert visitor.ok("s/0/history/messages", tube="mails", event="expired")["messages"] == []
    one = visitor.ok("s/0/history/messages", tube="mails", body="il 17")["messages"]
    assert [int(each["key"]) for each in one] == [jobs[17]]
    assert len(visitor.ok("s/0/history/messages", body="mail 1")["messages"]) == 11
    assert visitor.ok("s/0/history/messages", tube="mails", body="mail .*")["messages"] == []
    assert visitor.ok("s/0/history/messages", tube="mails", to=1)["messages"] == []
    later = {"from": time.time() + 100}
    assert visitor.ok("s/0/history/messages", tube="mails", **later)["messages"] == []
    assert visitor.ok("s/0/history/messages", tube="no-such")["messages"] == []


def test_the_timeline_of_an_ended_job(historic: Any) -> None:
    visitor, jobs, other, live = historic
    for job, tube in ((jobs[3], "mails"), (other, "a/b;c$d(e)")):
        view = visitor.ok(f"s/0/jobs/{job}")
        assert not view["live"]
        check(view["timeline"], [EVENT])
        assert [one["event"] for one in view["timeline"]] == ["put", "reserve", "delete"]
        times = [one["at"] for one in view["timeline"]]
        assert times == sorted(times)
        assert view["history"]["tube"] == tube
        check(view["history"], MESSAGE)
    assert view["body"]["base64"] == base64.b64encode(PNG).decode()
    assert visitor.ok(f"s/0/jobs/{live}")["live"]
    binlog = visitor.ok("s/0/binlog")
    assert binlog["history"] is not None
    assert binlog["binlog"]


def test_a_history_of_many_tubes(server: Server, tmp_path: Path) -> None:
    """It has more folders and files than the console may open at once."""
    store = make_store(
        tmp_path / "store", [finished(number, f"tube-{number}") for number in range(300)]
    )
    with console(server, args=("--history", store)) as running:
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (400, 400))
        visitor = running.visitor()
        topics = visitor.ok("s/0/history/topics")["topics"]
        assert {one["tube"]: one["messages"] for one in topics} == {
            f"tube-{number}": 1 for number in range(300)
        }
        newest = visitor.ok("s/0/history/messages", limit=3)["messages"]
        assert [one["key"] for one in newest] == ["299", "298", "297"]
        assert visitor.ok("s/0/jobs/7")["stats"]["TUBE"] == "tube-7"


def test_without_a_history(place: Place) -> None:
    for path in ("history/topics", "history/messages"):
        answer = place.visitor.get(f"s/0/{path}")
        assert (answer.status, "--history" in answer.error) == (400, True)


def test_a_server_that_does_not_run(server: Server) -> None:
    with ours() as gone:
        pass
    with console(gone, args=("--history", "/nonexistent")) as running:
        visitor = running.visitor()
        for path in ("jobs?tube=x", "jobs/1", "tubes/x", "connections", "dead-letters", "binlog"):
            answer = visitor.get(f"s/0/{path}")
            assert 500 <= answer.status < 504 or answer.status == 400, (path, answer)
            assert answer.error
        assert visitor.get("s/0/samples").status == 200
        assert visitor.get("s/0/operations").status == 200


def test_all_dead_letters_of_a_shape_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads only the first ones; an operation on a shape reads all."""
    monkeypatch.setattr(jobs, "SCANNED_JOBS", 10)
    with ours() as server, server.connect() as client:
        client.ask(b"use mails\r\n")
        for number in range(30):
            client.bury(client.put(b"no %d" % number if number % 2 else b"x"))
        target = Target(parse_address(f"127.0.0.1:{server.port}"))
        page = jobs.dead_letters(target, "mails")
        assert (page.scanned, page.total) == (10, 30)
        assert sum(group.count for group in page.groups) == 10
        found = jobs.dead_letters(target, "mails", "no #")
        assert [len(group.ids) for group in found.groups if group.shape == "no #"] == [15]
