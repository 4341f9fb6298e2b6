"""Statistics of all tubes from the control socket equal stats-tube, and no tube is listed twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from processes import eventually
from servers import Server, ours
from shards import tubes_of
from wire import Client, in_tube, list_of, wait_for

from beanstalkd_py.control.client import connect
from beanstalkd_py.control.tube_stats import Row, rows

WAITING = 20

AS_IN_STATS_TUBE = {
    **{state: f"current-jobs-{state}" for state in ("urgent", "ready", "reserved", "delayed")},
    **{what: f"current-{what}" for what in ("using", "watching", "waiting")},
    **{key: key for key in ("pause", "cmd-delete", "cmd-pause-tube")},
    "buried": "current-jobs-buried",
    "total": "total-jobs",
    "puts": "total-jobs",
    "deletes": "cmd-delete",
    "pause-time-left": "pause-time-left",
}


@pytest.fixture(params=[1, 3])
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def server(workers: int) -> Iterator[Server]:
    with ours(f"--workers={workers}") as running:
        yield running


def all_rows(server: Server) -> list[Row]:
    with connect(f"127.0.0.1:{server.port}") as control:
        return [row for part in control.parts("tubes") for row in rows(part)]


def by_name(server: Server) -> dict[str, Row]:
    found = all_rows(server)
    named = {row["name"]: row for row in found}
    assert len(named) == len(found)
    return named


def stats_by_protocol(client: Client, name: str) -> dict[str, Any]:
    stats = client.stats(b"stats-tube " + name.encode())
    return {key: int(stats[theirs]) for key, theirs in AS_IN_STATS_TUBE.items()}


@pytest.mark.costly
def test_rows_equal_stats_tube(server: Server, workers: int) -> None:
    """Also for clients that use, watch and wait for tubes of another worker."""
    names = [next(tubes_of(worker, workers)) for worker in range(workers)]
    waiting = server.connect()
    silent = server.connect()
    with server.connect() as client:
        for number, name in enumerate(names):
            client.ask(b"use %b\r\n" % name)
            client.ask(b"watch %b\r\n" % name)
            jobs = [client.put(pri=pri) for pri in (0, 1024, 1024, 2000, 2000)]
            client.put(delay=1000)
            client.bury(jobs[4])
            client.ask(b"delete %d\r\n" % jobs[3])
            client.ask(b"reserve-job %d\r\n" % jobs[2])
            client.ask(b"pause-tube %b %d\r\n" % (name, 1000 * number))
        waiting.send(b"watch empty\r\nignore default\r\nreserve\r\n")
        waiting.replies(2)

        def same() -> bool:
            found = by_name(server)
            listed = {name.decode() for name in list_of(client.ask(b"list-tubes\r\n"))}
            assert set(found) == listed
            for name, row in found.items():
                reported = stats_by_protocol(client, name)
                seen = {key: int(row[key]) for key in reported}
                # The second row may change between the two requests.
                left = seen.pop("pause-time-left") - reported.pop("pause-time-left")
                if seen != reported or left not in (0, 1):
                    return False
            return found["empty"]["waiting"] == 1

        # Counts of remote users arrive within a round or two.
        assert eventually(same), by_name(server)
        assert [by_name(server)[name.decode()]["reserves"] for name in names] == [2] * workers
    waiting.close()
    silent.close()


@pytest.mark.costly
def test_reserves_count_replies_only(server: Server, workers: int) -> None:
    """Clients that wait at all workers claim several jobs and get one."""
    names = [next(tubes_of(worker, workers)) for worker in range(workers)]
    watch_all = b"".join(b"watch %b\r\n" % name for name in names)
    clients = [server.connect() for _ in range(WAITING)]
    for client in clients:
        client.send(watch_all + b"reserve\r\n")
        client.replies(workers)
    producers = [in_tube(server.connect(), name) for name in names]
    for name, producer in zip(names, producers, strict=True):
        wait_for(producer, name, "current-waiting", WAITING)
    for producer in producers:
        producer.send(b"put 0 0 60 1\r\nx\r\n" * WAITING)
    for client in clients:
        assert client.reply().startswith(b"RESERVED")
    for producer in producers:
        assert all(reply.startswith(b"INSERTED") for reply in producer.replies(WAITING))

    def counted(key: str) -> int:
        found = by_name(server)
        return sum(found[name.decode()][key] for name in names)

    assert eventually(lambda: counted("reserved") == WAITING)
    assert counted("reserves") == WAITING
    assert counted("ready") == WAITING * (workers - 1)
    for one in [*clients, *producers]:
        one.close()


@pytest.mark.slow
def test_many_tubes_with_long_names(server: Server, workers: int) -> None:
    """The rows need several messages, while other tubes are created and removed."""
    names = {(b"%d-" % number).ljust(200, b"x").decode() for number in range(1500)}
    with server.connect() as client:
        for name in names:
            client.send(b"use %b\r\nput 0 100 60 1\r\nx\r\n" % name.encode())
        client.replies(2 * len(names))
        assert set(by_name(server)) == {*names, "default", max(names)}
        with connect(f"127.0.0.1:{server.port}") as control, server.connect() as other:
            seen: list[str] = []
            for number, part in enumerate(control.parts("tubes")):
                other.ask(b"use short-lived-%d\r\n" % number)
                seen += [row["name"] for row in rows(part)]
            lasting = [name for name in seen if name in names]
            assert len(lasting) == len(names)
            assert control.ask("tubes") == {"missing": []}
