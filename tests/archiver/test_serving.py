"""Serve with --history: test the messages of finished jobs from outside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from archiver.test_exactly_once import archiver_of
from processes import children, eventually
from servers import Server, ours
from wire import Client, in_tube

from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.reader import StoreReader

pytestmark = pytest.mark.costly

SOON_S = 10.0


class HistoryFolders:
    def __init__(self, top: Path) -> None:
        self.binlog, self.history = top / "binlog", top / "history"
        self.binlog.mkdir()

    @contextlib.contextmanager
    def server(self, *args: str, workers: int = 1) -> Iterator[Server]:
        place = (f"-b{self.binlog}", f"--history={self.history}", f"--workers={workers}")
        with ours(*place, *args) as server:
            yield server

    def reported(self) -> list[Stored]:
        """Return all messages in the order of the log."""
        if not (self.history / "commitlog").is_dir():
            return []
        with StoreReader.open(self.history) as store:
            return list(store.scan())

    def jobs(self) -> list[int]:
        return [int(message.properties["KEYS"]) for message in self.reported()]

    def get(self, job: int) -> Stored:
        (message,) = (each for each in self.reported() if each.properties["KEYS"] == str(job))
        return message


@pytest.fixture
def folders(tmp_path: Path) -> HistoryFolders:
    return HistoryFolders(tmp_path)


def kinds(message: Stored) -> list[str]:
    return re.findall(r"(?:^|;)([a-z]+)@\d{19}", message.properties["timeline"])


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beanstalkd_py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def job_with_every_event(client: Client) -> int:
    """Make a job with every kind of event, and leave it reserved."""
    job = client.put(b"tell it", pri=5, ttr=60)
    assert client.reserve() == job
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.ask(b"release %d 7 0\r\n" % job) == b"RELEASED\r\n"
    assert client.reserve() == job
    assert client.ask(b"bury %d 9\r\n" % job) == b"BURIED\r\n"
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    assert client.reserve() == job
    return job


def wait_for_deferred_entry(client: Client) -> None:
    """Wait until a reserve without a later entry gets a deferred entry."""

    def written() -> int:
        return int(client.stats(b"stats")["binlog-records-written"])

    before = written()
    assert eventually(lambda: written() > before)


EVENTS = ["put", "reserve", "touch", "release", "reserve", "bury", "kick", "reserve"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_finished_job_is_archived_with_all_its_events(
    folders: HistoryFolders, workers: int
) -> None:
    with folders.server(workers=workers) as server, server.connect() as client:
        job = job_with_every_event(in_tube(client, b"mail.high"))
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert eventually(lambda: folders.jobs() == [job], SOON_S)
    message = folders.get(job)
    assert kinds(message) == [*EVENTS, "delete"]
    assert (message.topic, message.body) == ("mail%2Ehigh", b"tell it")
    assert message.reconsume_times == 2
    reported = {
        "TUBE": "mail.high",
        "TAGS": "deleted",
        "pri": "9",
        "delay": "0",
        "ttr": "60",
        "reserves": "3",
        "timeouts": "0",
        "releases": "1",
        "buries": "1",
        "kicks": "1",
    }
    assert {name: message.properties[name] for name in reported} == reported


POLICIES = """
[tube.old]
expires = 1
[tube.failing]
max-reserves = 1
then = "move:dead"
[tube.hopeless]
max-reserves = 1
then = "delete"
"""
TAGS = {
    "deleted": "deleted",
    "emptied": "truncated",
    "left": "moved",
    "old": "expired",
    "failing": "dead-lettered",
    "hopeless": "discarded",
}


def test_tags_record_how_a_job_ended(folders: HistoryFolders, tmp_path: Path) -> None:
    config = tmp_path / "policies.toml"
    config.write_text(POLICIES)
    with folders.server(f"--config={config}") as server, server.connect() as client:
        jobs = {}
        for name in TAGS:
            client.ask(b"use %b\r\n" % name.encode())
            jobs[name] = client.put()
        for name in ("failing", "hopeless"):
            assert client.ask(b"reserve-job %d\r\n" % jobs[name]).startswith(b"RESERVED")
            assert client.ask(b"release %d 0 0\r\n" % jobs[name]) == b"RELEASED\r\n"
        assert client.ask(b"delete %d\r\n" % jobs["deleted"]) == b"DELETED\r\n"
        assert client.ask(b"truncate emptied\r\n") == b"TRUNCATED 1\r\n"
        assert client.ask(b"reserve-job %d\r\n" % jobs["left"]).startswith(b"RESERVED")
        moved = client.ask(b"move %d found 0 0\r\n" % jobs["left"])
        assert eventually(lambda: len(folders.jobs()) == len(TAGS), SOON_S)
        assert client.stats(b"stats-tube dead")["current-jobs-ready"] == "1"
    tags = {each.properties["TUBE"]: each.properties["TAGS"] for each in folders.reported()}
    assert tags == TAGS
    assert moved.startswith(b"MOVED ")
    assert kinds(folders.get(jobs["left"])) == ["put", "reserve", "delete"]
    assert kinds(folders.get(jobs["old"])) == ["put", "delete"]
    assert kinds(folders.get(jobs["failing"])) == ["put", "reserve", "release", "delete"]


def test_jobs_finished_before_history_was_enabled_are_archived(folders: HistoryFolders) -> None:
    with ours(f"-b{folders.binlog}") as server, server.connect() as client:
        client.put()  # stays live, so that its file is kept
        job = client.put(b"before")
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    with folders.server():
        assert eventually(lambda: folders.jobs() == [job], SOON_S)
    assert kinds(folders.get(job)) == ["put", "delete"]


def test_a_stop_archives_all_finished_jobs(folders: HistoryFolders) -> None:
    with folders.server() as server, server.connect() as client:
        jobs = [client.put() for _ in range(200)]
        client.send(b"".join(b"delete %d\r\n" % job for job in jobs))
        assert client.replies(len(jobs)) == [b"DELETED\r\n"] * len(jobs)
        assert server.stop() == 0
        assert sorted(folders.jobs()) == jobs


def all_recovered(folders: HistoryFolders, jobs: set[int]) -> bool:
    return set(folders.jobs()) == jobs


def is_replaced(server: Server, archiver: int) -> bool:
    return archiver_of(server) not in (None, archiver)


@pytest.mark.slow
def test_a_killed_archiver_is_restarted_and_archives_no_job_twice(folders: HistoryFolders) -> None:
    with folders.server("-s8192") as server, server.connect() as client:
        jobs: list[int] = []
        for _ in range(4):
            last = job_with_every_event(client)
            jobs += [last, *(client.put(b"x" * 1000) for _ in range(20))]
            client.send(b"".join(b"delete %d\r\n" % job for job in jobs[-21:]))
            assert client.replies(21) == [b"DELETED\r\n"] * 21
            assert eventually(partial(all_recovered, folders, set(jobs)), SOON_S)
            before = archiver_of(server)
            assert before is not None
            os.kill(before, signal.SIGKILL)
            assert eventually(partial(is_replaced, server, before), SOON_S)
    assert sorted(folders.jobs()) == sorted(jobs)
    assert kinds(folders.get(last)) == [*EVENTS, "delete"]
    assert not list(folders.binlog.glob("*.done"))


@pytest.mark.slow
def test_a_history_survives_restarts_and_reshards(folders: HistoryFolders) -> None:
    """Jobs that are open during a reshard have complete timelines when they end."""
    with folders.server() as server, server.connect() as client:
        client.send(b"use a\r\nwatch a\r\n")
        client.replies(2)
        open_job = job_with_every_event(client)
        ended = client.put()
        assert client.ask(b"delete %d\r\n" % ended) == b"DELETED\r\n"
        wait_for_deferred_entry(client)
        server.kill()
    for workers in (3, 1):
        with folders.server(workers=workers) as server, server.connect() as client:
            assert client.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
            assert client.reserve() == open_job
            wait_for_deferred_entry(client)
            server.kill()
    assert ended in folders.jobs()
    with folders.server() as server, server.connect() as client:
        assert client.ask(b"delete %d\r\n" % open_job) == b"DELETED\r\n"
    assert sorted(folders.jobs()) == sorted([open_job, ended])
    assert kinds(folders.get(open_job)) == [*EVENTS, "reserve", "reserve", "delete"]


@pytest.mark.slow
def test_history_status_counts_archived_jobs(folders: HistoryFolders) -> None:
    with folders.server() as server, server.connect() as client:
        job = client.put()
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"

        def archived() -> int:
            asked = run("history", "status", "--json", f"--addr=127.0.0.1:{server.port}")
            reported = json.loads(asked.stdout) if asked.returncode == 0 else {}
            return int(reported.get("archived", 0))

        assert eventually(lambda: archived() == 1, SOON_S)
        shown = run("history", "status", f"--addr=127.0.0.1:{server.port}")
        assert "serving" in shown.stdout and shown.returncode == 0
    with ours() as server:
        asked = run("history", "status", f"--addr=127.0.0.1:{server.port}")
        assert asked.returncode == 1 and "serve --history DIR" in asked.stderr


def test_usage_errors_are_reported_at_the_start(folders: HistoryFolders, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    binlog = f"-b{folders.binlog}"
    for args, status, words in (
        (["--history=/tmp"], 5, "-b DIR"),
        ([binlog, "--history="], 10, "empty"),
        ([binlog, f"--history={tmp_path}/file"], 10, "is not a directory"),
        ([binlog, f"--history={tmp_path}/a/b"], 10, "does not exist"),
        ([binlog, "--history=x", "--history-age=ever"], 5, "--history-age"),
        ([binlog, "--history=x", "--history-backlog=5"], 5, "--history-backlog"),
        ([binlog, "--history-age=5d"], 5, "--history DIR"),
        ([binlog, f"--history={folders.binlog}"], 5, "same folder"),
    ):
        ended = run("serve", "-l127.0.0.1", "-p0", *args)
        assert (ended.returncode, ended.stderr.count("\n")) == (status, 1), ended.stderr
        assert words in ended.stderr


def test_no_archiver_runs_without_the_option(folders: HistoryFolders) -> None:
    with ours(f"-b{folders.binlog}") as server:
        assert archiver_of(server) is None and len(children(server.pid)) == 1
        assert not (folders.binlog / "history.id").exists()


@pytest.mark.slow
def test_jobs_that_ended_without_a_history_do_not_stay_open(folders: HistoryFolders) -> None:
    """The job histories are kept open, but the files with their ends are missing."""
    with folders.server() as server, server.connect() as client:
        jobs = [client.put() for _ in range(3)]
        for job in jobs:
            assert client.reserve() == job
            assert client.ask(b"bury %d 0\r\n" % job) == b"BURIED\r\n"
    with ours(f"-b{folders.binlog}", "-s8192") as server, server.connect() as client:
        for job in jobs:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        for _ in range(20):
            filler = client.put(b"x" * 2000)
            assert client.ask(b"delete %d\r\n" % filler) == b"DELETED\r\n"
    with folders.server() as server:

        def open_jobs() -> int:
            asked = run("history", "status", "--json", f"--addr=127.0.0.1:{server.port}")
            reported = json.loads(asked.stdout)
            return int(reported["open-jobs"]) if reported["state"] == "serving" else -1

        assert eventually(lambda: open_jobs() == 0, SOON_S)


def test_tools_reject_folders_with_unarchived_jobs(folders: HistoryFolders, tmp_path: Path) -> None:
    """Events of finished jobs that are not archived are only in the files that would be removed."""
    with folders.server() as server, server.connect() as client:
        assert eventually((folders.binlog / "history.id").exists, SOON_S)
        archiver = archiver_of(server)
        assert archiver is not None
        os.kill(archiver, signal.SIGSTOP)
        jobs = [client.put() for _ in range(5)]
        for job in jobs:
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        server.kill()
    for words in (["compact"], ["reshard", "--workers=2"]):
        refused = run("binlog", *words, folders.binlog)
        assert refused.returncode == 2 and "--history DIR" in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert folders.jobs() == []
    done = run("binlog", "reshard", "--workers=2", f"--history={folders.history}", folders.binlog)
    assert done.returncode == 0, done.stderr
    assert sorted(folders.jobs()) == jobs


def ended(client: Client) -> int:
    """Put and delete a job, and return its id."""
    job = client.put()
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    return job


def remove_log(folders: HistoryFolders) -> None:
    for path in (folders.history / "commitlog").iterdir():
        path.unlink()


@pytest.mark.slow
def test_missing_store_files_at_a_start_are_reported_and_archived_again(
    folders: HistoryFolders,
) -> None:
    with folders.server() as server, server.connect() as client:
        jobs = [ended(client) for _ in range(5)]
        assert server.stop() == 0
    remove_log(folders)
    assert run("history", "--store", folders.history, "verify").returncode == 1
    with folders.server() as server:
        assert eventually(partial(all_recovered, folders, set(jobs)), SOON_S)
        assert eventually(lambda: "files of the log are missing" in server.stderr(), SOON_S)

        def missing() -> int:
            asked = run("history", "status", "--json", f"--addr=127.0.0.1:{server.port}")
            return int(json.loads(asked.stdout)["missing-bytes"]) if asked.stdout else 0

        assert eventually(lambda: missing() > 0, SOON_S)
    assert sorted(folders.jobs()) == jobs
    assert run("history", "--store", folders.history, "verify").returncode == 0


@pytest.mark.slow
def test_store_files_removed_while_open_are_archived_again(folders: HistoryFolders) -> None:
    """The archiver notices before it removes binlog files, and the parent restarts it."""
    with folders.server() as server, server.connect() as client:
        jobs = [ended(client)]
        assert eventually(partial(all_recovered, folders, set(jobs)), SOON_S)
        remove_log(folders)
        jobs.append(ended(client))
        assert eventually(partial(all_recovered, folders, set(jobs)), 3 * SOON_S)
        assert "was removed" in server.stderr()
    assert sorted(folders.jobs()) == jobs
    assert run("history", "--store", folders.history, "verify").returncode == 0


@pytest.mark.slow
def test_resharding_leaves_no_file_that_was_archived(folders: HistoryFolders) -> None:
    """Even one that seems needed, such as an old file numbered above those of C beanstalkd."""
    with folders.server() as server, server.connect() as client:
        client.put()
    (folders.binlog / "binlog.90.done").write_bytes(b"\7\0\0\0")
    for workers in (2, 1):
        with folders.server(workers=workers) as server, server.connect() as client:
            assert client.stats()["current-jobs-ready"] == "1"
        assert not list(folders.binlog.rglob("*.done*"))
