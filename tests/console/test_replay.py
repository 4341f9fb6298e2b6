"""The operations `replay` and `undelete`: jobs, times, stops, kills, the state of the CLI."""

from __future__ import annotations

import base64
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.operator import Operator
from console.consoles import Visitor, console
from history.finished import FIRST_MS, finished, make_store, number_of, without_body
from processes import eventually
from servers import Server, ours, reference

pytestmark = pytest.mark.costly
STARTERS = {"ours": ours, "C": reference}
COUNT = 400
NUMBERS = range(1, 2 * COUNT, 2)
"""The jobs of the tube mails; the others are of another tube."""
FIRST_S = FIRST_MS / 1000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    messages = [finished(one, "mails" if one % 2 else "other") for one in range(2 * COUNT)]
    return make_store(tmp_path_factory.mktemp("replay") / "store", messages)


@pytest.fixture(autouse=True, scope="module")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module", params=list(STARTERS))
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    with STARTERS[request.param]() as running:
        yield running


@pytest.fixture(scope="module")
def visitor(either: Server, store: Path) -> Iterator[Visitor]:
    with console(either, args=("--history", store)) as running:
        yield running.visitor()


@pytest.fixture
def name(tube: bytes) -> str:
    return tube.decode()


def jobs_in(server: Server, tube: str) -> Counter[int]:
    """Return how often each job is in a tube."""
    rows = Operator(f"127.0.0.1:{server.port}").do("export", tube).json_lines
    bodies = (
        row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])
        for row in rows
    )
    return Counter(map(number_of, bodies))


def test_a_replay(either: Server, visitor: Visitor, name: str) -> None:
    arguments = {"tube": "mails", "from": None, "to": None, "to_tube": name, "rate": None}
    plan = visitor.dry_run("replay", **arguments)
    assert plan["count"] == COUNT
    assert name in plan["text"]
    assert visitor.get(f"s/0/tubes/{name}").status == 404
    done = visitor.run("replay", **arguments)
    assert (done["error"], done["done"], done["total"]) == (None, COUNT, COUNT)
    assert jobs_in(either, name) == Counter(NUMBERS)
    # A complete replay begins again, because the user has asked for it again.
    assert visitor.dry_run("replay", **arguments)["count"] == COUNT
    assert visitor.run("replay", **arguments)["done"] == COUNT
    assert set(jobs_in(either, name).values()) == {2}


def test_times(either: Server, visitor: Visitor, name: str) -> None:
    times = {"from": FIRST_S + 100, "to": FIRST_S + 200.5}
    expected = [one for one in NUMBERS if 100 <= one < 200.5]
    plan = visitor.dry_run("replay", tube="mails", to_tube=name, **times)
    assert plan["count"] == len(expected)
    assert visitor.run("replay", tube="mails", to_tube=name, **times)["done"] == len(expected)
    assert jobs_in(either, name) == Counter(expected)


def test_how_jobs_ended(either: Server, visitor: Visitor, name: str) -> None:
    """`event` and `key` are conditions of `history replay --filter`, with its state file."""
    expected = [one for one in NUMBERS if finished(one).properties["TAGS"] == "truncated"]
    arguments = {"tube": "mails", "event": "truncated", "key": "", "to_tube": name}
    assert 0 < visitor.dry_run("replay", **arguments)["count"] == len(expected) < COUNT
    assert visitor.run("replay", **arguments)["done"] == len(expected)
    assert jobs_in(either, name) == Counter(expected)
    one_job = {"tube": "mails", "event": None, "key": "7", "to_tube": f"{name}-key"}
    assert visitor.run("replay", **one_job)["done"] == 1
    assert jobs_in(either, f"{name}-key") == Counter([7])


def test_conditions(either: Server, visitor: Visitor, name: str) -> None:
    where = "reserves>0 & pri<1024"
    arguments = {"tube": "mails", "body": "7:", "where": where, "to_tube": name}
    of_conditions = [
        one
        for one in NUMBERS
        if int(finished(one).properties["reserves"]) > 0
        and int(finished(one).properties["pri"]) < 1024
    ]
    expected = [one for one in of_conditions if b"7:" in finished(one).body]
    assert 0 < len(expected) < len(of_conditions)
    assert visitor.dry_run("replay", **arguments)["count"] == len(expected)
    assert visitor.run("replay", **arguments)["done"] == len(expected)
    assert jobs_in(either, name) == Counter(expected)
    literally = {**arguments, "body": ".*", "where": "", "to_tube": f"{name}-2"}
    assert visitor.dry_run("replay", **literally)["count"] == 0, "no regular expression"


def test_other_values_of_the_jobs(either: Server, visitor: Visitor, name: str) -> None:
    arguments = {"tube": "mails", "key": "7", "to_tube": name}
    changed = {"pri": 0, "delay": 100, "ttr": 4294967295}
    for values in ({"pri": None, "delay": None, "ttr": None}, changed):
        assert visitor.dry_run("replay", **arguments, **values)["count"] == 1
        assert visitor.run("replay", **arguments, **values)["done"] == 1
    first, second = Operator(f"127.0.0.1:{either.port}").do("export", name).json_lines
    properties = finished(7).properties
    assert (first["pri"], first["ttr"]) == (int(properties["pri"]), int(properties["ttr"]))
    assert (first["state"], second["state"]) == ("ready", "delayed")
    assert (second["pri"], second["ttr"]) == (changed["pri"], changed["ttr"])
    assert 90 < second["delay"] <= changed["delay"]  # what is left of it


def test_undelete(either: Server, visitor: Visitor, name: str) -> None:
    (found,) = visitor.ok("s/0/history/messages", tube="mails", key="7")["messages"]
    arguments = {"tube": "mails", "key": "7", "offset": found["offset"], "to_tube": name}
    assert visitor.dry_run("undelete", **arguments)["count"] == 1
    assert visitor.get(f"s/0/tubes/{name}").status == 404
    done = visitor.run("undelete", **arguments)
    assert (done["error"], done["done"]) == (None, 1)
    assert jobs_in(either, name) == Counter([7])
    (row,) = Operator(f"127.0.0.1:{either.port}").do("export", name).json_lines
    properties = finished(7).properties
    assert (row["pri"], row["ttr"]) == (int(properties["pri"]), int(properties["ttr"]))
    assert f"as job {row['id']}" in done["text"]
    for wrong, status in (
        ({"offset": found["offset"] + 1}, 404),
        ({"key": "9"}, 404),
        ({"tube": "no-such"}, 404),
        ({"tube": None}, 400),
        ({"key": 7}, 400),
        ({"to_tube": "a b"}, 400),
    ):
        for dry_run in (True, False):
            values = {"kind": "undelete", "dry_run": dry_run, **arguments, **wrong}
            assert visitor.post("s/0/operations", values).status == status, values
    assert jobs_in(either, name) == Counter([7])


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": 1},
        {"tube": ""},
        {"tube": None},
        {"to_tube": "a b"},
        {"from": 2, "to": 1},
        {"from": -1},
        {"from": "1"},
        {"from": True},
        {"from": 1e12},
        {"rate": 0},
        {"pri": -1},
        {"pri": 2**32},
        {"pri": "7"},
        {"delay": 1.5},
        {"ttr": 0},
        {"ttr": True},
        {"body": 1},
        {"where": "pri"},
        {"where": "body~^(a+)+$"},
        {"where": "pri=1 & key!~x"},
        {"where": "pri=1 & " * 200},
        {"where": ["pri=1"]},
    ],
)
def test_wrong_arguments(visitor: Visitor, wrong: dict[str, object]) -> None:
    for dry_run in (True, False):
        values = {"kind": "replay", "tube": "mails", "to_tube": "x", "dry_run": dry_run, **wrong}
        assert visitor.post("s/0/operations", values).status == 400, values
    assert visitor.get("s/0/tubes/x").status == 404


def test_tubes_without_jobs(visitor: Visitor) -> None:
    values = {"kind": "replay", "tube": "no-such", "dry_run": True}
    assert visitor.post("s/0/operations", values).status == 404
    assert visitor.dry_run("replay", tube="mails", to=1, to_tube="x")["count"] == 0


def test_without_a_history(server: Server) -> None:
    with console(server) as running:
        answer = running.visitor().post("s/0/operations", {"kind": "replay", "tube": "mails"})
        assert (answer.status, "--history" in answer.error) == (400, True)


def test_a_rate_and_a_stop(either: Server, visitor: Visitor, name: str) -> None:
    arguments = {"tube": "mails", "to_tube": name}
    begun = time.monotonic()
    operation = visitor.begin("replay", rate=50, **arguments)
    assert eventually(lambda: visitor.operation(operation["id"])["done"] >= 50, 10)
    assert time.monotonic() - begun > 0.8
    visitor.post(f"s/0/operations/{operation['id']}/stop", {})
    stopped = visitor.ended(operation["id"], 2)
    assert 50 <= stopped["done"] < COUNT
    assert sum(jobs_in(either, name).values()) == stopped["done"]
    plan = visitor.dry_run("replay", **arguments)
    assert plan["count"] == COUNT - stopped["done"]
    assert plan["text"].startswith(f"Continue after {stopped['done']} jobs")
    rest = visitor.run("replay", **arguments)
    assert (rest["done"], rest["total"]) == (plan["count"], plan["count"])
    assert jobs_in(either, name) == Counter(NUMBERS)


def test_a_killed_console_continues(either: Server, store: Path, name: str) -> None:
    """No job is missing; those of one batch may be there twice."""
    arguments = {"tube": "mails", "to_tube": name, "rate": 300}
    for _ in range(2):
        with console(either, args=("--history", store)) as running:
            running.visitor().begin("replay", **arguments)
            time.sleep(0.3)
            running.kill()
    put = sum(jobs_in(either, name).values())
    assert 0 < put < COUNT
    with console(either, args=("--history", store)) as running:
        done = running.visitor().run("replay", **arguments)
    assert done["error"] is None
    jobs = jobs_in(either, name)
    assert set(jobs) == set(NUMBERS)
    assert sum(jobs.values()) - COUNT <= 2 * 128


def test_the_cli_continues_a_replay_of_the_console(
    either: Server, store: Path, visitor: Visitor, name: str
) -> None:
    operation = visitor.begin("replay", tube="mails", to_tube=name, rate=20)
    assert eventually(lambda: visitor.operation(operation["id"])["done"] >= 5, 10)
    operator = Operator(f"127.0.0.1:{either.port}")
    words = ("history", "--store", str(store), "replay", "mails", "--into", name)
    locked = operator.try_(*words)
    assert (locked.status, "locked" in locked.errors[-1]) == (2, True)
    second = visitor.run("replay", tube="mails", to_tube=name)
    assert "running in another process" in second["error"]
    visitor.post(f"s/0/operations/{operation['id']}/stop", {})
    visitor.ended(operation["id"])
    operator.do(*words)
    assert jobs_in(either, name) == Counter(NUMBERS)


def test_jobs_that_cannot_be_put(either: Server, tmp_path: Path, name: str) -> None:
    several_keys = {**finished(3).properties, "KEYS": "3 other"}
    messages = [finished(1), without_body(finished(2)), finished(3, properties=several_keys)]
    damaged = make_store(tmp_path / "store", messages)
    with console(either, args=("--history", damaged)) as running:
        visitor = running.visitor()
        plan = visitor.dry_run("replay", tube="mails", to_tube=name)
        assert (plan["count"], "1 job that cannot" in plan["text"]) == (2, True), plan
        done = visitor.run("replay", tube="mails", to_tube=name)
        (bodiless,) = visitor.ok("s/0/history/messages", tube="mails", key="2")["messages"]
        one = {"tube": "mails", "key": "2", "offset": bodiless["offset"], "to_tube": name}
        refused = visitor.post("s/0/operations", {"kind": "undelete", **one})
        assert (refused.status, "no body" in refused.error) == (404, True)
        (found,) = visitor.ok("s/0/history/messages", tube="mails", key="other")["messages"]
        one |= {"key": found["key"], "offset": found["offset"]}
        assert visitor.run("undelete", **one)["done"] == 1
    assert (done["done"], "1 job cannot be put" in done["text"]) == (2, True)


def test_a_folder_for_the_state_that_cannot_be_written(
    either: Server, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path / "file"))
    with console(either, args=("--history", store)) as running:
        values = {"kind": "replay", "tube": "mails", "to_tube": name, "dry_run": False}
        answer = running.visitor().post("s/0/operations", values)
        assert "cannot" in (answer.json.get("error") or "")
    assert Operator(f"127.0.0.1:{either.port}").do("tubes").status == 0
