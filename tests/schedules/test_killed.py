"""Kill the server at random moments while a schedule runs each second: each tick has one job."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from cli.operator import Operator
from processes import eventually
from servers import Server, ours

from beanstalkd_py.binlog.layout import SCHEDULES
from beanstalkd_py.schedules.ticks import tick_text

CRON = 'cron = "* * * * * *"\ncatch-up = "all"\n'
AROUND_A_TICK_S = 0.06
HOURS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "b"
    made.mkdir()
    return made


def jobs_of(server: Server) -> int:
    with server.connect(30) as client:
        reply = client.ask(b"stats-tube ticks\r\n")
    return int(reply.partition(b"current-jobs-ready: ")[2].split()[0]) if b"ready" in reply else 0


def settled(server: Server) -> tuple[int, int]:
    """Wait until no missed tick is left; return the last tick and the number of jobs."""
    operator = Operator(f"127.0.0.1:{server.port}")

    def row() -> tuple[int, int]:
        (found,) = operator.do("schedule", "list", "--json").json
        return found["last-put"], found["next-tick"]

    assert eventually(lambda: row()[1] > time.time(), 20)
    while True:
        before, jobs, after = row(), jobs_of(server), row()
        if before == after:
            return before[0], jobs


def killed(server: Server, choose: random.Random) -> None:
    """Kill the server at a random time; half of them about when it puts a job and records it."""
    if choose.random() < 0.5:
        time.sleep(1.0 - time.time() % 1 + choose.uniform(-0.005, AROUND_A_TICK_S))
    else:
        time.sleep(choose.uniform(0.0, 1.2))
    server.kill()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("workers", "kills"),
    [
        pytest.param(1, 3, id="few"),
        pytest.param(1, 40, id="workers-1", marks=pytest.mark.slow),
        pytest.param(2, 40, id="workers-2", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(900)
def test_each_tick_has_one_job(tmp_path: Path, folder: Path, workers: int, kills: int) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[schedule.s]\n{CRON}tube = "ticks"\n')
    arguments = (f"--config={config}", f"--workers={workers}", f"-b{folder}")
    choose = random.Random(1)
    first = 0
    for _ in range(kills):
        with ours(*arguments) as server:
            last, jobs = settled(server)
            first = first or last - jobs
            assert jobs == last - first
            killed(server, choose)


@pytest.mark.costly
@pytest.mark.parametrize("ended", [False, True], ids=["waiting", "ended"])
@pytest.mark.parametrize("catch_up", [pytest.param("one", marks=pytest.mark.slow), "all"])
@pytest.mark.parametrize(
    "workers", [1, pytest.param(2, marks=pytest.mark.slow)], ids="workers-{}".format
)
def test_a_put_that_was_not_recorded_is_not_repeated(
    tmp_path: Path, folder: Path, workers: int, catch_up: str, ended: bool
) -> None:
    """The server is killed after the reply to a put and before the progress is on disk."""
    config = tmp_path / "config.toml"
    tick = int(time.time()) // 60 * 60 - 1800  # so that no tick comes during the test
    cron = f"{tick // 60 % 60} * * * *"
    text = f'[schedule.s]\ncron = "{cron}"\ncatch-up = "{catch_up}"\ntube = "ticks"\n'
    config.write_text(text)
    arguments = (f"--config={config}", f"--workers={workers}", f"-b{folder}")
    with ours(*arguments):
        pass
    missed = HOURS if catch_up == "all" else 1
    for start in range(3):
        set_back(folder, tick - HOURS * 3600)
        with ours(*arguments) as server:
            last, jobs = settled(server)
            assert last == tick
            assert jobs == (0 if ended and start else missed)
            if ended and jobs:
                with server.connect() as client:
                    assert client.ask(b"truncate ticks\r\n") == b"TRUNCATED %d\r\n" % missed
            server.kill()


def set_back(folder: Path, last: int) -> None:
    """Return the progress to this tick."""
    path = folder / SCHEDULES
    values = json.loads(path.read_text())
    before = tick_text(last)
    values["s"] |= {"last": before, "highest": before, "last-put": ""}
    path.write_text(json.dumps(values))
