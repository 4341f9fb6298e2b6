"""Schedules of running servers: ticks, commands, reload, failures, restarts, a set clock."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli.operator import Operator
from preloading import build_library, preload
from processes import eventually
from server.metrics.scrape import Metrics, get
from servers import Server, free_port, ours
from shards import TUBES, kill_worker, worker_pids
from wire import Client, in_tube

from beanstalkd_py.binlog.layout import SCHEDULES
from beanstalkd_py.schedules.ticks import tick_text

EACH_SECOND = 'cron = "* * * * * *"\n'
NEVER = 'cron = "0 0 29 2 *"\n'
LIMIT_S = 10.0
ON_TIME_S = 0.05


def table(name: str, settings: str, tube: str = "tube", body: str = "x") -> str:
    return f'[schedule.{name}]\n{settings}tube = "{tube}"\nbody = "{body}"\n'


@dataclass
class Scheduled:
    """A server with a configuration file."""

    server: Server
    path: Path

    @property
    def operator(self) -> Operator:
        return Operator(f"127.0.0.1:{self.server.port}")

    def rows(self) -> dict[str, Any]:
        rows = self.operator.do("schedule", "list", "--json").json
        return {row["name"]: row for row in rows}

    def reload(self, text: str) -> None:
        self.path.write_text(text)
        self.operator.try_("reload")

    def ready(self, tube: bytes = b"tube") -> int:
        with self.server.connect() as client:
            reply = client.ask(b"stats-tube %b\r\n" % tube)
        return (
            int(reply.partition(b"current-jobs-ready: ")[2].split()[0]) if b"ready" in reply else 0
        )


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.slow)], ids="workers-{}".format)
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    return tmp_path / "config.toml"


@pytest.fixture
def arguments(path: Path, workers: int) -> list[str]:
    return [f"--config={path}", f"--workers={workers}", f"-b{path.parent / 'b'}"]


def take(client: Client, count: int) -> list[tuple[float, bytes]]:
    """Reserve and delete jobs; return the time of each, and its body."""
    taken = []
    for _ in range(count):
        reply = client.ask(b"reserve-with-timeout 5\r\n")
        now = time.time()
        head, _, body = reply.partition(b"\r\n")
        taken.append((now, body.removesuffix(b"\r\n")))
        assert client.ask(b"delete %b\r\n" % head.split()[1]) == b"DELETED\r\n"
    return taken


@pytest.mark.slow
def test_a_job_at_each_tick_and_on_time(path: Path, arguments: list[str]) -> None:
    tables = [table(f"t-{n}", EACH_SECOND, tube.decode(), str(n)) for n, tube in enumerate(TUBES)]
    path.write_text("".join(tables))
    with ours(*arguments) as server:
        for number, tube in enumerate(TUBES):
            with in_tube(server.connect(), tube) as client:
                assert client.ask(b"truncate %b\r\n" % tube).startswith(b"TRUNCATED")
                taken = take(client, 5)
            assert {body for _, body in taken} == {b"%d" % number}
            assert len({int(at) for at, _ in taken}) >= 4
            # Not the maximum, because a busy machine delays some.
            assert min(at % 1 for at, _ in taken) < ON_TIME_S


def test_list_next_and_run(path: Path, arguments: list[str]) -> None:
    path.write_text(
        table("nightly", 'cron = "0 2 * * *"\ntimezone = "Europe/Berlin"\npriority = 7\n')
        + table("often", EACH_SECOND, "other")
    )
    with ours(*arguments) as server:
        scheduled = Scheduled(server, path)
        assert eventually(lambda: scheduled.rows()["often"]["puts"] > 0, LIMIT_S)
        rows = scheduled.rows()
        assert (rows["nightly"]["last-put"], rows["nightly"]["puts"]) == (0, 0)
        assert rows["nightly"]["priority"] == 7
        assert rows["often"]["last-put"] == rows["often"]["next-tick"] - 1
        lines = scheduled.operator.do("schedule", "list").lines
        assert lines[0].split() == [
            "schedule",
            "cron",
            "tube",
            "last",
            "next",
            "puts",
            "errors",
            "error",
        ]
        assert lines[1].split()[:7] == ["nightly", "0", "2", "*", "*", "*", "tube"]
        of_server = scheduled.operator.do("schedule", "next", "nightly", "-n", "2")
        of_file = scheduled.operator.do("schedule", "next", "-n2", "nightly", "--config", str(path))
        assert of_server.lines == of_file.lines
        assert "T02:00:00+0" in of_server.lines[1]
        job = scheduled.operator.do("schedule", "run", "nightly", "--json").json["id"]
        with server.connect() as client:
            stats = client.job_stats(job)
        assert (stats["tube"].strip('"'), stats["pri"], stats["ttr"]) == ("tube", "7", "60")
        assert scheduled.rows()["nightly"]["puts"] == 1
        assert "no schedule 'x'" in scheduled.operator.fail(1, "schedule", "run", "x")
        assert "no schedule 'x'" in scheduled.operator.fail(2, "schedule", "next", "x")


def test_ticks_of_a_file_without_a_server(path: Path) -> None:
    tables = [table("daily", 'cron = "0 2 * * *"\n'), table("weekly", 'cron = "0 2 * * 1"\n')]
    path.write_text("".join(tables))
    operator = Operator(f"127.0.0.1:{free_port()}")
    found = operator.do("schedule", "next", "--config", str(path), "--json", "-n", "8").json
    assert len(found) == 8
    assert [each["tick"] for each in found] == sorted(each["tick"] for each in found)
    assert {each["schedule"] for each in found} == {"daily", "weekly"}
    assert found[0]["time"].endswith("T02:00:00+00:00")
    path.write_text("schedule = 1")
    assert "must be tables" in operator.fail(2, "schedule", "next", "--config", str(path))


def test_without_schedules(path: Path, arguments: list[str]) -> None:
    path.write_text("")
    with ours(*arguments) as server:
        scheduled = Scheduled(server, path)
        assert scheduled.rows() == {}
        assert "no schedule 'x'" in scheduled.operator.fail(1, "schedule", "run", "x")
        assert not (path.parent / "b" / SCHEDULES).exists()


@pytest.mark.costly
def test_reload(path: Path, arguments: list[str]) -> None:
    path.write_text("")
    with ours(*arguments) as server:
        scheduled = Scheduled(server, path)
        scheduled.reload(table("often", EACH_SECOND, body="1"))
        shown = scheduled.operator.do("reload").lines
        assert shown == ["no option has changed"]
        assert eventually(lambda: scheduled.ready() >= 2, LIMIT_S)
        scheduled.reload(table("often", EACH_SECOND + "bad = 1\n"))
        assert "unknown setting 'bad'" in scheduled.operator.fail(1, "reload")
        path.write_text(table("often", 'cron = "61 * * * *"\n'))
        server.signal(signal.SIGHUP)
        assert eventually(lambda: "bad minute" in server.stderr(), LIMIT_S)
        before = scheduled.ready()
        assert eventually(lambda: scheduled.ready() > before, LIMIT_S)
        scheduled.reload(table("other", NEVER))
        assert list(scheduled.rows()) == ["other"]
        before = scheduled.ready()
        time.sleep(1.2)
        assert scheduled.ready() == before


@pytest.mark.slow
def test_draining(path: Path, arguments: list[str]) -> None:
    path.write_text(
        table("often", EACH_SECOND) + table("exact", EACH_SECOND + 'catch-up = "all"\n')
    )
    with ours(*arguments) as server:
        scheduled = Scheduled(server, path)
        scheduled.operator.do("drain", "on")
        time.sleep(0.2)
        before = scheduled.rows()
        # A put that was sent at this moment is refused.
        assert all(row["errors"] <= 1 for row in before.values())
        time.sleep(3)
        rows = scheduled.rows()
        for name, row in rows.items():
            counts = (row["puts"], row["errors"])
            assert counts == (before[name]["puts"], before[name]["errors"])
        scheduled.operator.do("drain", "off")
        puts = before["exact"]["puts"]
        assert eventually(lambda: scheduled.rows()["exact"]["puts"] >= puts + 3, LIMIT_S)


@pytest.mark.costly
def test_a_failure_is_shown_and_retried(path: Path, arguments: list[str]) -> None:
    port = free_port()
    path.write_text("[tube.tube]\nmax-jobs = 1\n" + table("often", EACH_SECOND))
    with ours(*arguments, f"--metrics=127.0.0.1:{port}") as server:
        scheduled = Scheduled(server, path)
        assert eventually(lambda: scheduled.rows()["often"]["errors"] > 2, LIMIT_S)
        row = scheduled.rows()["often"]
        assert (row["puts"], row["error"]) == (1, "OUT_OF_MEMORY")
        assert "OUT_OF_MEMORY" in scheduled.operator.do("schedule", "list").lines[1]
        metrics = Metrics(get(port, "/metrics").text)
        labels = {"schedule": "often"}
        assert metrics.sum("beanstalkd_schedule_failing", **labels) == 1
        assert metrics.sum("beanstalkd_schedule_errors_total", **labels) >= 3
        assert metrics.sum("beanstalkd_schedule_puts_total", **labels) == 1
        last = metrics.sum("beanstalkd_schedule_last_tick_timestamp_seconds", **labels)
        assert last == row["last-put"]
        assert server.stderr().count("cannot put the job of") == 1
        ready = get(port, "/-/ready")
        assert (ready.status, "; failing schedules: often" in ready.text) == (200, True)
        scheduled.operator.do("delete", str(first_job(server)))
        assert eventually(lambda: scheduled.rows()["often"]["puts"] == 2, 20)


def first_job(server: Server) -> int:
    with in_tube(server.connect(), b"tube") as client:
        return int(client.ask(b"peek-ready\r\n").split()[1])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("all", 5),
        pytest.param("one", 1, marks=pytest.mark.slow),
        pytest.param("none", 0, marks=pytest.mark.slow),
    ],
)
def test_ticks_missed_while_the_server_was_stopped(
    path: Path, arguments: list[str], catch_up: str, expected: int
) -> None:
    tick = int(time.time()) // 60 * 60 - 1800  # so that no tick comes during the test
    cron = f"{tick // 60 % 60} * * * *"
    path.write_text(table("hourly", f'cron = "{cron}"\ncatch-up = "{catch_up}"\n'))
    with ours(*arguments):
        pass
    file = path.parent / "b" / SCHEDULES
    values = json.loads(file.read_text())
    last = tick_text(tick - 5 * 3600)
    values["hourly"] |= {"last": last, "highest": last}
    file.write_text(json.dumps(values))
    for _ in range(2):
        with ours(*arguments) as server:
            assert jobs_after_start(Scheduled(server, path), expected) == expected


def jobs_after_start(scheduled: Scheduled, expected: int) -> int:
    assert eventually(lambda: scheduled.ready() >= expected, LIMIT_S)
    time.sleep(0.3)
    return scheduled.ready()


def test_a_damaged_file_of_the_progress_ends_the_start(path: Path, arguments: list[str]) -> None:
    from cli.commands import FOLDER, refusal

    path.write_text(table("hourly", 'cron = "0 * * * *"\n'))
    (path.parent / "b" / SCHEDULES).write_text("{")
    assert f"{SCHEDULES}: " in refusal(FOLDER, "serve", *arguments, f"-p{free_port()}")


@pytest.mark.slow
def test_a_worker_that_restarts_gets_the_job(path: Path) -> None:
    path.write_text("".join(table(f"t-{t.decode()}", EACH_SECOND, t.decode()) for t in TUBES))
    with ours(f"--config={path}", "--workers=2") as server:
        scheduled = Scheduled(server, path)
        for pid in worker_pids(server):
            kill_worker(server, pid)
        puts = sum(row["puts"] for row in scheduled.rows().values())
        assert eventually(
            lambda: (
                all(scheduled.ready(tube) > 0 for tube in TUBES)
                and sum(row["puts"] for row in scheduled.rows().values()) > puts + 1
            ),
            20,
        )


@pytest.fixture
def offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the offset of the wall clock of servers that are started."""
    file = tmp_path / "offset"
    file.write_text("0")
    library = build_library(Path(__file__).with_name("clock_offset.c"), tmp_path)
    preload(library, monkeypatch)
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(file))
    yield file


def set_clock(file: Path, offset_s: int) -> None:
    """Set the wall clock of servers at once: they read the file at any time."""
    changed = file.with_suffix(".new")
    changed.write_text(str(offset_s))
    changed.replace(file)


@pytest.mark.costly
def test_the_clock_is_set(path: Path, arguments: list[str], offset: Path) -> None:
    path.write_text(table("hourly", 'cron = "0 * * * *"\ncatch-up = "all"\n'))
    with ours(*arguments) as server:
        scheduled = Scheduled(server, path)
        until_next = 3600 - int(time.time()) % 3600
        set_clock(offset, until_next)
        assert eventually(lambda: scheduled.ready() == 1, 3)
        set_clock(offset, 0)  # an hour back at most: the tick is not repeated
        time.sleep(1.5)
        set_clock(offset, until_next + 3600)
        assert eventually(lambda: scheduled.ready() == 2, 3)
        set_clock(offset, until_next - 86400)
        assert eventually(lambda: "the clock was set back" in server.stderr(), 3)
        set_clock(offset, until_next - 86400 + 3600)
        assert eventually(lambda: scheduled.ready() == 3, 3)
        set_clock(offset, until_next + 3600)
        time.sleep(1.5)
        assert scheduled.ready() == 3
