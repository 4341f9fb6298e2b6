"""The events of a console: surveys, viewers that are slow or leave, and a server that dies."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console.consoles import ConsoleProcess, Visitor, console
from processes import eventually
from servers import Server, our_command, ours, reference
from wire import in_tube

from beanstalkd_py.console import live
from beanstalkd_py.console.application import MOST_VIEWERS
from beanstalkd_py.control.durations import Durations, durations_between
from beanstalkd_py.quantities import NS_PER_S

pytestmark = pytest.mark.costly
STARTERS = {"ours": ours, "C": reference}
COLUMNS = (
    *("tube", "ready", "reserved", "delayed", "buried"),
    *("urgent", "using", "watching", "waiting", "total"),
)


@pytest.fixture(scope="module", params=list(STARTERS))
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    with STARTERS[request.param]() as running:
        yield running


@pytest.fixture(scope="module")
def visitor(either: Server) -> Iterator[Visitor]:
    with console(either) as running:
        yield running.visitor()


def rows(survey: Any) -> dict[str, dict[str, Any]]:
    return {row[0]: dict(zip(COLUMNS, row, strict=False)) for row in survey["tubes"]}


def put(server: Server, tube: bytes, count: int = 1) -> None:
    with in_tube(server.connect(), tube) as client:
        for _ in range(count):
            client.put(b"x")


def polls(server: Server) -> int:
    """Return how often the server was asked for stats, not counting this time."""
    with server.connect() as client:
        lines = client.ask(b"stats\r\n").splitlines()
    return int(next(line for line in lines if line.startswith(b"cmd-stats:")).split()[1]) - 1


def test_all_tubes_first_then_changes(either: Server, visitor: Visitor, tube: bytes) -> None:
    name = tube.decode()
    put(either, tube, 3)
    put(either, b"unchanged")
    with visitor.events() as events:
        hello = events.until("hello")
        is_ours = hello["features"]["list_jobs"]
        assert hello["kind"] == ("beanstalkd_py" if is_ours else "beanstalkd")
        assert set(hello) == {"interval_s", "kind", "version", "id", "features"}
        full = None
        while full is None or name not in rows(full):
            full = events.until("survey")
        assert rows(full)[name]["ready"] == 3
        assert all(len(row) == 15 for row in full["tubes"])
        for _ in range(2):
            events.until("survey")  # rates are known since the second survey
        put(either, tube, 2)
        seen: dict[str, Any] = {}
        for _ in range(4):
            survey = events.until("survey")
            assert not survey["full"]
            seen |= rows(survey)
            assert "unchanged" not in rows(survey)
            if seen.get(name, {}).get("ready") == 5:
                break
        assert seen[name]["ready"] == 5
    with visitor.events() as events:
        assert events.until("survey")["full"], "a new viewer gets all tubes"


def test_tubes_that_are_gone(either: Server, visitor: Visitor, tube: bytes) -> None:
    put(either, tube)
    name = tube.decode()
    with visitor.events() as events:
        while name not in rows(events.until("survey")):
            pass
        with in_tube(either.connect(), tube) as client:
            client.ask(b"delete %d\r\n" % client.reserve())
        for _ in range(5):
            survey = events.until("survey")
            if name in survey["gone"]:
                return
    raise AssertionError("the tube is not gone")


def test_time_in_the_queue(either: Server, visitor: Visitor, tube: bytes) -> None:
    with visitor.events() as events, in_tube(either.connect(), tube) as client:
        is_ours = events.until("hello")["features"]["control"]
        events.until("survey")
        client.put(b"x")
        time.sleep(0.6)
        client.reserve()
        found = [events.until("survey")["durations"] for _ in range(3)]
    if not is_ours:
        assert found == [None] * 3
        return
    (queue,) = {each["queue_p99"] for each in found} - {None}
    assert 0.53 < queue < 1.1
    assert {each["sync_p99"] for each in found} == {None}, "the server has no binlog"


def test_percentiles_are_those_between_two_polls() -> None:
    """The buckets end at 1, 2, 4, 8 and 16 ns."""
    queue = {"before": [5, 0, 0, 0, 0], "now": [5, 0, 10, 0, 10]}
    sync = {"before": [9, 9, 9, 9, 9], "now": [0, 0, 0, 4, 0]}  # the server was restarted
    before, now = ({"queue": queue[name], "sync": sync[name]} for name in ("before", "now"))
    found = durations_between(before, now)
    expected = (4, 8 + 8 * 0.98, 4 + 4 * 0.5, 4 + 4 * 0.99)
    assert [value * NS_PER_S for value in found if value is not None] == pytest.approx(expected)
    assert durations_between(now, now) == Durations()


def test_features(either: Server, visitor: Visitor) -> None:
    with visitor.events() as events:
        features = events.until("hello")["features"]
    is_ours = features["control"]
    for name in ("list_jobs", "schedules", "policies", "connections"):
        assert features[name] == is_ours
    assert not features["history"]


def test_viewers_get_the_same_bytes(either: Server, visitor: Visitor) -> None:
    """The server is polled once for all viewers."""
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(visitor.events()) for _ in range(10)]
        for viewer in viewers:
            viewer.until("survey")
        time.sleep(0.5)
        before, begun = polls(either), time.monotonic()
        surveys = []
        for viewer in viewers:
            found = []
            while len(found) < 3:
                name, data = viewer.next()
                if name == "survey" and not json.loads(data)["full"]:
                    found.append(data)
            surveys.append(found)
        passed = time.monotonic() - begun
        polled = polls(either) - before - 1
    common = set(surveys[0]).intersection(*surveys)
    assert len(common) >= 2, "viewers may begin one survey apart"
    assert polled <= passed / live.INTERVAL_S + 2


def test_operations_reach_viewers(either: Server, visitor: Visitor, tube: bytes) -> None:
    with visitor.events() as events:
        events.until("survey")
        operation = visitor.run("put", tube=tube.decode(), body="x")
        for _ in range(5):
            found = events.until("operations")["operations"]
            if found and found[0]["id"] == operation["id"] and found[0]["ended"]:
                return
    raise AssertionError("the end of the operation is not seen")


def test_samples(either: Server, visitor: Visitor) -> None:
    with visitor.events() as events:
        for _ in range(4):
            events.until("survey")
    samples = visitor.ok("s/0/samples")
    lengths = {len(column) for name, column in samples.items() if name != "interval_s"}
    assert len(lengths) == 1
    assert lengths.pop() >= 3
    assert samples["at"] == sorted(samples["at"])


def test_a_slow_viewer_begins_again(either: Server, visitor: Visitor, tube: bytes) -> None:
    """It does not delay others, and gets all tubes when it reads again."""
    sock = socket.socket()
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", visitor.port))
        sock.sendall(b"GET /api/s/0/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with visitor.events() as events:
            events.until("survey")
            # Events of operations fill the socket's buffers.
            for _ in range(150):
                visitor.begin("put", tube=tube.decode(), body="x" * 200)
            begun = time.monotonic()
            events.until("survey")
            assert time.monotonic() - begun < 10
        sock.settimeout(10)
        data, end = b"", time.monotonic() + 15
        while time.monotonic() < end and data.count(b'"full":true') < 2:
            data += sock.recv(1 << 20)
        assert data.count(b'"full":true') >= 2


def _restart(server: Server) -> Server:
    again = Server([*our_command(), "-l", "127.0.0.1", "-p", str(server.port)], server.port, {})
    again.wait_until_accepting()
    return again


def test_trouble_and_recovery() -> None:
    with ours() as server, console(server) as running:
        visitor = running.visitor()
        put(server, b"before")
        with visitor.events() as events:
            assert "before" in rows(events.until("survey"))
            server.kill()
            assert events.until("trouble")["error"]
            with visitor.events() as late:
                assert late.until("trouble")["error"], "a new viewer sees the trouble, too"
            assert visitor.get("s/0/jobs", tube="before").status == 503
            again = _restart(server)
            try:
                put(again, b"after")
                hello = events.until("hello")
                assert hello["features"]["control"]
                seen: set[str] = set()
                gone: set[str] = set()
                end = time.monotonic() + 15
                while time.monotonic() < end and not ("after" in seen and "before" in gone):
                    survey = events.until("survey")
                    seen |= rows(survey).keys()
                    gone |= set(survey["gone"])
                    values = [one for one in survey["rates"].values() if one is not None]
                    assert all(one >= 0 for one in values)
                assert ("after" in seen, "before" in gone) == (True, True)
            finally:
                again.stop()


def test_a_server_that_never_ran() -> None:
    with ours() as gone:
        pass
    with console(gone) as running, running.visitor().events() as events:
        assert "no server" in events.until("trouble")["error"]


def test_polls_end_without_viewers(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a process of its own, because it needs short times."""
    script = tmp_path / "short_times.py"
    script.write_text(
        "from gevent import monkey; monkey.patch_all()\n"
        "from beanstalkd_py.console import live\n"
        "live.INTERVAL_S, live.LINGER_S, live.KEEPALIVE_S = 0.1, 0.5, 0.2\n"
        "from beanstalkd_py.__main__ import main\n"
        "main()\n"
    )
    monkeypatch.setattr(
        "console.consoles.command",
        lambda *args: [__import__("sys").executable, str(script), "console", *map(str, args)],
    )
    with console(server) as running:
        visitor = running.visitor()
        idle = polls(server)
        time.sleep(0.5)
        assert polls(server) - idle == 1, "no viewer, no polls; one is of this test"
        with visitor.events() as events:
            for _ in range(3):
                events.until("survey")
        with visitor.events() as events:
            survey = events.until("survey")
            assert survey["full"]
        # The console sees the end of a viewer when it sends the next event.
        assert eventually(lambda: _is_quiet(server), 10)
        with visitor.events() as events:
            events.until("hello")
            events.until("survey")
            events.until("survey")


def _is_quiet(server: Server) -> bool:
    before = polls(server)
    time.sleep(0.6)
    return polls(server) - before == 1


def test_many_viewers_come_and_go(server: Server) -> None:
    with console(server) as running:
        visitor = running.visitor()
        for _ in range(5):
            with contextlib.ExitStack() as stack:
                for _ in range(40):
                    stack.enter_context(visitor.events()).next()
        assert _descriptors(running) < 400
        assert eventually(lambda: _descriptors(running) < 60, 20), "left viewers are forgotten"


def test_the_number_of_viewers_is_bounded(server: Server) -> None:
    with console(server) as running, contextlib.ExitStack() as stack:
        visitor = running.visitor()
        for _ in range(MOST_VIEWERS):
            stack.enter_context(visitor.events()).next()
        answer = visitor.get("s/0/live")
        assert (answer.status, "are open" in answer.error) == (503, True)
        assert visitor.get("session").status == 200


def _descriptors(running: ConsoleProcess) -> int:
    return len(list(Path(f"/proc/{running.pid}/fd").iterdir()))
