"""move on both servers: jobs, their order, and recovery after a kill."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.fault_proxy import FaultProxy
from cli.jobs.test_tube_transfer import LINE, Line, as_line, assert_same, put
from cli.operator import Operator
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import eventually
from servers import Server, ours
from wire import Client, in_tube

from beanstalkd_py.admin.staging import (
    FAR_FUTURE_S,
    STAGED,
    StagedCopy,
    find_staged_copies,
    staging_delay_s,
)
from beanstalkd_py.admin.statistics import JobStats

HIDDEN_S = 2**30


def in_order(lines: list[Line]) -> list[Line]:
    """Sort as the command does: ready ones by priority, delayed ones, buried ones."""
    ready = sorted((line for line in lines if line[0] == "ready"), key=lambda line: line[1])
    return ready + [line for state in ("delayed", "buried") for line in lines if line[0] == state]


@pytest.mark.costly
@settings(max_examples=20)
@given(lines=st.lists(LINE, max_size=12), foreign_jobs=st.lists(st.integers(0, 12), max_size=4))
def test_move_keeps_everything_but_the_ids(
    operator: Operator,
    either: Server,
    wire: Client,
    tube: bytes,
    lines: list[Line],
    foreign_jobs: list[int],
) -> None:
    source, target = f"{tube.decode()}.source", f"{tube.decode()}.target"
    with either.connect() as client, either.connect() as holder:
        in_tube(client, source.encode())
        in_tube(holder, target.encode())
        for number, line in enumerate(lines):
            for _ in range(foreign_jobs.count(number)):
                wire.put(b"a stranger")
            put(client, line)
        report = operator.do("move", source, target, "--json").json
        assert (report["moved"], report["finished_of_killed_move"]) == (len(lines), 0)
        records = operator.do("export", target).json_lines
        moved = [as_line(record) for record in records]
        by_id = [line for line in moved if line[0] != "delayed"]
        expected = in_order(lines)
        assert [line[:3] + line[4:] for line in by_id] == [
            line[:3] + line[4:] for line in expected if line[0] != "delayed"
        ]
        assert_same(
            sorted((each for each in records if each["state"] == "delayed"), key=by_content),
            sorted((line for line in lines if line[0] == "delayed"), key=lambda line: line[1:]),
        )
        assert operator.do("export", source).out == b""
        operator.do("truncate", "--yes", target)


def by_content(record: dict[str, Any]) -> tuple[Any, ...]:
    state, pri, ttr, delay, body = as_line(record)
    del state
    # Delays may have lost a second, but their order is kept.
    return pri, ttr, delay, body


@given(
    copy=st.integers(2, 2**63),
    distance=st.integers(1, 2**29),
    state=st.sampled_from(["ready", "delayed", "buried"]),
)
def test_staging_delay_round_trip(copy: int, distance: int, state: str) -> None:
    original = max(1, copy - distance)
    delay_s = staging_delay_s(original, state)
    job = JobStats(copy, "t", "delayed", 0, delay_s, 1, delay_s, 0)
    assert find_staged_copies([job]) == [StagedCopy(job, original, state)]
    assert STAGED <= delay_s <= FAR_FUTURE_S - STAGED // 4
    ordinary = replace(job, delay_s=delay_s - STAGED)
    assert find_staged_copies([ordinary, replace(job, delay_s=FAR_FUTURE_S)]) == []


def test_limit_and_states(operator: Operator, either: Server, wire: Client, name: str) -> None:
    for number in range(300):
        wire.put(b"%d" % number, pri=300 - number)
    for number in range(3):
        wire.bury(wire.put(b"buried %d" % number))
    operator.do("move", name, f"{name}.a", "--limit", 5)
    moved = [record["body"] for record in operator.do("export", f"{name}.a").json_lines]
    assert moved == ["299", "298", "297", "296", "295"]
    operator.do("move", name, f"{name}.b", "--state", "buried", "--limit", "2")
    moved = [record["body"] for record in operator.do("export", f"{name}.b").json_lines]
    assert moved == ["buried 0", "buried 1"]
    stats = wire.stats(b"stats-tube " + name.encode())
    assert (stats["current-jobs-ready"], stats["current-jobs-buried"]) == ("295", "1")


def test_a_rate_is_kept(operator: Operator, either: Server, wire: Client, name: str) -> None:
    for _ in range(120):
        wire.put(b"x")
    begun_mono = time.monotonic()
    operator.do("move", name, f"{name}.a", "--rate", 200)
    assert 0.55 <= time.monotonic() - begun_mono < 20
    assert wire.stats(b"stats-tube %s.a" % name.encode())["current-jobs-ready"] == "120"


def test_ctrl_c_ends_a_pause(operator: Operator, either: Server, wire: Client, name: str) -> None:
    for _ in range(3):
        wire.put(b"x")
    words = ("move", name, f"{name}.a", "--rate", 0.001)
    with operator.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        stats = b"stats-tube %s" % name.encode()
        assert eventually(lambda: wire.stats(stats)["current-jobs-ready"] == "2")
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=10)[1]
    assert (process.returncode, b"interrupted; moved 1 job;" in errors) == (130, True), errors


def test_reserved_jobs_stay(operator: Operator, wire: Client, name: str) -> None:
    first, _ = wire.put(b"held"), wire.put(b"free")
    assert wire.reserve() == first
    assert operator.do("move", name, f"{name}.to").lines == [
        f"moved 1 job from {name} to {name}.to"
    ]
    assert wire.ask(b"delete %d\r\n" % first) == b"DELETED\r\n"


POLICIES = """
[tube."deleted.*"]
max-reserves = 1
then = "delete"
[tube."unique.*"]
unique = "body"
[tube."prompt.*"]
max-delay = "1s"
"""


def test_policies_of_the_target(tmp_path: Path) -> None:
    """No policy takes a moved job for one that came back, and none deletes or merges jobs."""
    config = tmp_path / "beanstalkd-py.toml"
    config.write_text(POLICIES)
    with ours("--config", config) as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        for kind in ("deleted", "unique", "prompt"):
            with server.connect() as client, server.connect() as other:
                in_tube(client, f"{kind}.to".encode()).put(b"first")
                in_tube(other, f"from-{kind}".encode())
                for line in JOBS:
                    put(other, line)
                operator.do("move", f"from-{kind}", f"{kind}.to")
            found = operator.do("export", f"{kind}.to").json_lines
            states = sorted((job["body"], job["state"]) for job in found)
            expected = [(body.decode(), state) for state, _, _, _, body in JOBS]
            assert states == sorted([*expected, ("first", "ready")])


def test_an_import_leaves_the_jobs_of_a_unique_tube(tmp_path: Path) -> None:
    config = tmp_path / "beanstalkd-py.toml"
    config.write_text(POLICIES)
    with ours("--config", config) as server, server.connect() as client:
        operator = Operator(f"127.0.0.1:{server.port}")
        in_tube(client, b"unique.to")
        job = client.put(b"dead")
        lines = tmp_path / "lines"
        lines.write_text('{"state": "buried", "pri": 4, "body": "dead"}\n')
        operator.do("import", "unique.to", lines)
        assert client.job_stats(job)["state"] == "ready"


# --- kills --------------------------------------------------------------------------------------

JOBS: list[Line] = [
    ("ready", 5, 60, 0, b"first"),
    ("ready", 5, 60, 0, b"second"),
    ("delayed", 6, 60, 5000, b"later"),
    ("buried", 7, 60, 0, b"dead"),
    ("buried", 7, 60, 0, b"deader"),
]
BODIES = [line[4].decode() for line in JOBS]


def seen(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs that are not staged."""
    return [job for job in jobs if job["delay"] < HIDDEN_S]


class Scene:
    """Two tubes, kept in existence by connections; one has jobs.

    With `staged` the target's name is too long for the command `move`, so that copies are staged.
    """

    def __init__(self, either: Server, operator: Operator, name: str, staged: bool = True) -> None:
        self.operator = operator
        self.source, self.target = f"{name}.source", f"{name}.target"
        if staged:
            self.target = self.target.ljust(180, "-")
        self.clients = [either.connect() for _ in range(2)]
        in_tube(self.clients[0], self.source.encode())
        in_tube(self.clients[1], self.target.encode())
        for line in JOBS:
            put(self.clients[0], line)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        for tube in (self.source, self.target):
            self.operator.do("truncate", "--yes", tube)
        for client in self.clients:
            client.close()

    def seen(self, tube: str) -> list[dict[str, Any]]:
        """Return the jobs that a worker can get."""
        return seen(self.all_of(tube))

    def all_of(self, tube: str) -> list[dict[str, Any]]:
        return self.operator.do("export", tube).json_lines

    def check_no_job_lost_or_duplicated(self) -> None:
        jobs = [job for tube in self.tubes for job in self.all_of(tube)]
        assert {job["body"] for job in jobs} == set(BODIES)
        assert max(Counter(job["body"] for job in seen(jobs)).values()) == 1

    def assert_moved(self, allowed: set[str]) -> None:
        """Check that all jobs are in the target, in their state or, if `allowed` has it, ready."""
        assert self.all_of(self.source) == []
        there = self.all_of(self.target)
        jobs = {job["body"]: job for job in there}
        assert len(there) == len(JOBS)
        for state, pri, ttr, delay, body in JOBS:
            job = jobs[body.decode()]
            assert (job["pri"], job["ttr"]) == (pri, ttr)
            if not (job["state"] == "ready" and state in allowed):
                assert job["state"] == state
                assert delay - 3 <= job["delay"] <= delay

    @property
    def tubes(self) -> tuple[str, str]:
        return self.source, self.target


@pytest.mark.slow
@pytest.mark.parametrize("staged", [True, False], ids=["staged", "by-the-server"])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_connection_lost_at_any_command(
    either: Server, operator: Operator, name: str, share: float, staged: bool
) -> None:
    """No job is lost or can run twice, and the next move recovers."""
    for before in range(100):
        with Scene(either, operator, f"{name}.{before}", staged) as scene:
            with FaultProxy(either.port, before, share).open() as proxy:
                result = Operator(proxy.address).try_("move", *scene.tubes)
            assert result.status == (2 if proxy.cut else 0)
            # The server may still have to read that the connection has ended.
            assert eventually(lambda: scene.clients[0].stats()["current-jobs-reserved"] == "0")
            scene.check_no_job_lost_or_duplicated()
            operator.do("move", *scene.tubes)
            # The delay of a delayed job is lost with its original. The last step of a buried job is
            # two commands in one request, and half of the request has only the first.
            scene.assert_moved({"delayed", "buried"} if share == 0.5 else {"delayed"})
            if not proxy.cut:
                assert before > (10 if staged else 1)
                return
    raise AssertionError("a move that never ends")


def test_a_kill_between_put_and_delete(either: Server, operator: Operator, name: str) -> None:
    with (
        Scene(either, operator, name) as scene,
        FaultProxy(either.port, 1, hold=True).open() as proxy,
        Operator(proxy.address).start("move", *scene.tubes) as process,
    ):
        assert proxy.held.wait(10)
        assert len(scene.all_of(scene.target)) == 2
        assert scene.seen(scene.target) == []
        assert "another move into" in operator.fail(1, "move", *scene.tubes)
        process.kill()
        process.wait(10)
        assert len(scene.seen(scene.source)) == len(JOBS)
        proxy.resume()
        assert eventually(lambda: operator.try_("move", "x", scene.target).status == 1)


def test_recovery_of_a_killed_move_is_reported(
    either: Server, operator: Operator, name: str
) -> None:
    with Scene(either, operator, name) as scene:
        with FaultProxy(either.port, 1).open() as proxy:
            line = Operator(proxy.address).fail(2, "move", *scene.tubes)
        assert line.endswith("; moved 0 jobs, run the same command again to continue")
        result = operator.do("move", *scene.tubes)
        assert result.lines == [
            f"recovered a killed move into {scene.target}: moved 0, withdrew 2",
            f"moved 5 jobs from {scene.source} to {scene.target}",
        ]
        scene.assert_moved(set())


def test_job_reserved_meanwhile_is_not_moved(either: Server, operator: Operator, name: str) -> None:
    with (
        Scene(either, operator, name) as scene,
        FaultProxy(either.port, 1, hold=True).open() as proxy,
        Operator(proxy.address).start(
            *("move", *scene.tubes, "--json"), stdout=subprocess.PIPE
        ) as process,
    ):
        assert proxy.held.wait(10)
        taken = scene.clients[0].reserve()
        proxy.resume()
        out, _ = process.communicate(timeout=10)
        assert b'"moved": 4, "taken_by_others": 1,' in out
        bodies = [job["body"] for job in scene.all_of(scene.target)]
        assert sorted(bodies) == sorted(BODIES[1:])
        assert scene.clients[0].ask(b"delete %d\r\n" % taken) == b"DELETED\r\n"


def test_job_that_resembles_a_staged_copy_is_kept(
    either: Server, operator: Operator, wire: Client, name: str
) -> None:
    """Its delay refers to an existing but different job."""
    other = wire.put(b"other")
    with either.connect() as client:
        in_tube(client, f"{name}.target".encode())
        job = client.put(b"wanted in 68 years", delay=staging_delay_s(other, "ready"))
        assert operator.do("move", name, f"{name}.target", "--json").json["moved"] == 1
        assert client.job_stats(job)["state"] == "delayed"


def test_ctrl_c_ends_between_two_batches(either: Server, operator: Operator, name: str) -> None:
    with (
        Scene(either, operator, name) as scene,
        FaultProxy(either.port, 1, hold=True).open() as proxy,
        Operator(proxy.address).start(
            *("move", *scene.tubes), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
    ):
        assert proxy.held.wait(10)
        process.send_signal(signal.SIGINT)
        proxy.resume()
        out, errors = process.communicate(timeout=10)
        assert process.returncode == 130
        result = "interrupted; moved 2 jobs; run the same command again to move the others"
        assert errors.decode() == f"beanstalkd-py: {result}\n"
        assert out.decode() == f"moved 2 jobs from {scene.source} to {scene.target}\n"
        assert [job["body"] for job in scene.seen(scene.target)] == ["first", "second"]
        assert len(scene.all_of(scene.source)) == 3
