"""Metrics equal the statistics of the protocol, for any number of workers."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import children, eventually
from server.metrics.scrape import Metrics, watched
from shards import tubes_of
from wire import Client

SUMS = {
    **{
        f"current-jobs-{state}": ("beanstalkd_jobs", {"state": state})
        for state in ("ready", "reserved", "delayed", "buried")
    },
    "current-jobs-urgent": ("beanstalkd_urgent_jobs", {}),
    "job-timeouts": ("beanstalkd_job_timeouts_total", {}),
    "total-jobs": ("beanstalkd_jobs_put_total", {}),
    "max-job-size": ("beanstalkd_max_job_size_bytes", {}),
    "current-tubes": ("beanstalkd_tubes", {}),
    "current-connections": ("beanstalkd_connections", {}),
    "total-connections": ("beanstalkd_connections_accepted_total", {}),
    "current-producers": ("beanstalkd_clients", {"role": "producer"}),
    "current-workers": ("beanstalkd_clients", {"role": "worker"}),
    "current-waiting": ("beanstalkd_clients", {"role": "waiting"}),
    "binlog-records-migrated": ("beanstalkd_binlog_records_migrated_total", {}),
    "binlog-records-written": ("beanstalkd_binlog_records_written_total", {}),
    "binlog-max-size": ("beanstalkd_binlog_max_file_size_bytes", {}),
}
ABOUT = {
    "rusage-utime": ("beanstalkd_cpu_seconds_total", {"mode": "user"}),
    "rusage-stime": ("beanstalkd_cpu_seconds_total", {"mode": "system"}),
}
OF_TUBES = {
    **{
        f"current-jobs-{state}": ("beanstalkd_tube_jobs", {"state": state})
        for state in ("ready", "reserved", "delayed", "buried")
    },
    **{
        f"current-{role}": ("beanstalkd_tube_connections", {"role": role})
        for role in ("using", "watching", "waiting")
    },
    "current-jobs-urgent": ("beanstalkd_tube_urgent_jobs", {}),
    "total-jobs": ("beanstalkd_tube_jobs_put_total", {}),
    "cmd-delete": ("beanstalkd_tube_jobs_deleted_total", {}),
    "cmd-pause-tube": ("beanstalkd_tube_pauses_total", {}),
    "pause": ("beanstalkd_tube_pause_seconds", {}),
}


@pytest.fixture(params=[1, 2], scope="module")
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@dataclass(frozen=True)
class Reported:
    """Statistics and metrics of a server at rest."""

    workers: int
    tubes: list[bytes]
    sent: Counter[str]
    stats: dict[str, str]
    stats_after: dict[str, str]
    stats_tube: dict[bytes, dict[str, str]]
    metrics: Metrics
    at: float


@pytest.fixture(scope="module")
def scraped(workers: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    folder = tmp_path_factory.mktemp("binlog")
    sent = Counter({"list-tube-used": 1})  # used by the readiness check
    tubes = [next(tubes_of(worker, workers)) for worker in range(workers)]
    with watched(f"--workers={workers}", "-b", folder) as server:
        for tube in tubes:
            with server.server.connect() as client:
                busy(client, sent, tube)
        with server.server.connect() as client, server.server.connect() as waiting:
            client.put()
            client.reserve()
            ask(client, sent, b"pause-tube %b 1000\r\n" % tubes[0])
            sent.update(("put", "reserve-with-timeout", "watch", "watch", "ignore"))
            waiting.send(b"watch nothing\r\nwatch here\r\nignore default\r\nreserve\r\n")
            waiting.replies(3)
            assert eventually(lambda: client.stats()["current-waiting"] == "1")
            stats_tube = {tube: client.stats(b"stats-tube " + tube) for tube in tubes}
            sent["stats-tube"] += len(tubes)
            stats = client.stats()
            sent["stats"] = int(stats["cmd-stats"])
            at, metrics = time.time(), server.scrape()
            yield Reported(workers, tubes, sent, stats, client.stats(), stats_tube, metrics, at)


def ask(client: Client, sent: Counter[str], command: bytes) -> bytes:
    reply = client.ask(command)
    sent[command.split()[0].decode()] += 1
    return reply


def busy(client: Client, sent: Counter[str], tube: bytes) -> None:
    """Use most kinds of commands in one tube."""
    ask(client, sent, b"use %b\r\n" % tube)
    ask(client, sent, b"watch %b\r\n" % tube)
    jobs = []
    for pri, delay in ((0, 0), (5, 0), (2000, 0), (2000, 0), (9, 900), (9, 0), (9, 0)):
        reply = ask(client, sent, b"put %d %d 100 2\r\nhi\r\n" % (pri, delay))
        jobs.append(int(reply.split()[1]))
    reserved = int(ask(client, sent, b"reserve\r\n").split()[1])
    ask(client, sent, b"touch %d\r\n" % reserved)
    ask(client, sent, b"release %d 3 0\r\n" % reserved)
    ask(client, sent, b"reserve-job %d\r\n" % jobs[5])
    ask(client, sent, b"bury %d 0\r\n" % jobs[5])
    ask(client, sent, b"reserve-job %d\r\n" % jobs[6])
    ask(client, sent, b"bury %d 0\r\n" % jobs[6])
    ask(client, sent, b"kick-job %d\r\n" % jobs[6])
    ask(client, sent, b"kick 0\r\n")
    ask(client, sent, b"delete %d\r\n" % jobs[1])
    ask(client, sent, b"delete 123456789\r\n")
    ask(client, sent, b"put 0 0 1 70000\r\n" + b"x" * 70000 + b"\r\n")
    for word in (b"peek-ready", b"peek-delayed", b"peek-buried", b"list-tubes", b"list-tube-used"):
        ask(client, sent, word + b"\r\n")
    for word in (b"list-tubes-watched", b"stats"):
        ask(client, sent, word + b"\r\n")
    ask(client, sent, b"peek %d\r\n" % jobs[0])
    ask(client, sent, b"stats-job %d\r\n" % jobs[0])
    ask(client, sent, b"stats-tube %b\r\n" % tube)
    ask(client, sent, b"pause-tube %b 0\r\n" % tube)
    client.ask(b"nonsense\r\n")
    client.ask(b"x" * 400 + b"\r\n")
    ask(client, sent, b"ignore default\r\n")
    ask(client, sent, b"watch empty-%b\r\n" % tube)
    ask(client, sent, b"ignore %b\r\n" % tube)
    ask(client, sent, b"reserve-with-timeout 0\r\n")
    ask(client, sent, b"reserve-batch 3 0\r\n")
    ask(client, sent, b"reserve-abort\r\n")
    for job in (jobs[0], jobs[5], 123456789):  # ready, buried, none
        ask(client, sent, b"wait 0 %d\r\n" % job)
    ask(client, sent, b"watch %b\r\n" % tube)
    ask(client, sent, b"reserve\r\n")


def test_metrics_equal_stats(scraped: Reported) -> None:
    stats, metrics = scraped.stats, scraped.metrics
    for key, (name, labels) in SUMS.items():
        assert metrics.sum(name, **labels) == int(stats[key]), key
    for key, (name, labels) in ABOUT.items():
        # Both contain clock ticks of other processes.
        low, high = float(stats[key]) - 0.03, float(scraped.stats_after[key]) + 0.03
        assert low <= metrics.sum(name, **labels) <= high, key
    commands = metrics.labels("beanstalkd_commands_total", "command")
    assert {f"cmd-{name}" for name in commands} == {k for k in stats if k.startswith("cmd-")}
    for name in commands:
        counted = metrics.sum("beanstalkd_commands_total", command=name)
        assert counted == int(stats[f"cmd-{name}"]), name
    uptime = scraped.at - metrics.sum("beanstalkd_start_time_seconds")
    assert abs(uptime - int(stats["uptime"])) < 2
    oldest = [value for _, value in metrics.all("beanstalkd_binlog_oldest_index")]
    assert min(oldest) == int(stats["binlog-oldest-index"])
    current = [value for _, value in metrics.all("beanstalkd_binlog_current_index")]
    assert max(current) == int(stats["binlog-current-index"])
    assert metrics.sum("beanstalkd_draining") == (stats["draining"] == "true")
    (instance, _), *_ = metrics.all("beanstalkd_instance_info")
    for key in ("id", "pid", "hostname", "os", "platform"):
        assert instance[key] == stats[key].strip('"'), key
    (build, _), *_ = metrics.all("beanstalkd_build_info")
    assert build["protocol"] == stats["version"].strip('"')


def test_metrics_equal_stats_tube(scraped: Reported) -> None:
    metrics = scraped.metrics
    for name, stats in scraped.stats_tube.items():
        tube = name.decode()
        for key, (metric, labels) in OF_TUBES.items():
            assert metrics.sum(metric, tube=tube, **labels) == int(stats[key]), (tube, key)
        left = metrics.sum("beanstalkd_tube_pause_left_seconds", tube=tube)
        assert abs(left - int(stats["pause-time-left"])) <= 2
        assert 0 <= metrics.sum("beanstalkd_tube_oldest_ready_job_age_seconds", tube=tube) < 60
        assert metrics.sum("beanstalkd_tube_jobs_reserved_total", tube=tube) == 4
    assert metrics.sum("beanstalkd_tubes_not_shown") == 0
    assert metrics.sum("beanstalkd_worker_tubes_known") == scraped.workers
    for state in ("ready", "delayed", "buried", "reserved"):
        of_tubes = metrics.sum("beanstalkd_tube_jobs", state=state)
        assert of_tubes == metrics.sum("beanstalkd_jobs", state=state)


def test_each_command_has_a_duration(scraped: Reported) -> None:
    """On any worker and for any reply."""
    counted = {
        labels["command"]: int(value)
        for labels, value in scraped.metrics.all("beanstalkd_command_duration_seconds_count")
    }
    assert counted == {name: scraped.sent[name] for name in counted}
    assert set(scraped.sent) <= set(counted)
    for name in ("put", "delete", "stats"):
        total = scraped.metrics.sum("beanstalkd_command_duration_seconds_sum", command=name)
        assert 0 < total / counted[name] < 5


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"reserve", b"reserve-batch 5 100"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_wait_for_a_job_is_not_latency(count: int, line: bytes) -> None:
    """Also if the job comes from a remote tube."""
    wait_s = 0.5
    with watched(f"--workers={count}") as server:
        tubes = [next(tubes_of(worker, count)) for worker in range(count)]
        with server.server.connect() as client, server.server.connect() as other:
            for tube in tubes:
                client.ask(b"watch %b\r\n" % tube)
            for tube in tubes:
                client.send(line + b"\r\n")
                assert client.silent(wait_s)
                other.ask(b"use %b\r\n" % tube)
                other.put()
                assert client.reply().startswith((b"RESERVED ", b"BATCH 1\r\n"))
            metrics = server.scrape()
        name = "beanstalkd_command_duration_seconds"
        command = line.split()[0].decode()
        assert metrics.sum(f"{name}_count", command=command) == count
        assert metrics.sum(f"{name}_sum", command=command) < wait_s


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_wait_for_the_end_of_a_job_is_not_latency(count: int) -> None:
    """Also if the job is at another worker."""
    wait_s = 0.5
    with watched(f"--workers={count}") as server:
        with server.server.connect() as client, server.server.connect() as other:
            for worker in range(count):
                other.ask(b"use %b\r\n" % next(tubes_of(worker, count)))
                job = other.put()
                client.send(b"wait 100 %d\r\n" % job)
                assert client.silent(wait_s)
                other.ask(b"delete %d\r\n" % job)
                assert client.reply() == b"DELETED %d\r\n" % job
            metrics = server.scrape()
        name = "beanstalkd_command_duration_seconds"
        assert metrics.sum(f"{name}_count", command="wait") == count
        assert metrics.sum(f"{name}_sum", command="wait") < wait_s


def test_histograms_are_complete(scraped: Reported) -> None:
    """Cumulative, with a last bucket equal to the count, and base units in their names."""
    metrics = scraped.metrics
    histograms = [one for one in metrics.families.values() if one.type == "histogram"]
    assert {one.name for one in histograms} == {
        "beanstalkd_command_duration_seconds",
        "beanstalkd_sync_duration_seconds",
        "beanstalkd_sync_entries",
        "beanstalkd_job_queue_duration_seconds",
    }
    for family in histograms:
        series: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        for labels, value in metrics.all(f"{family.name}_bucket"):
            key = tuple(text for name, text in labels.items() if name != "le")
            series.setdefault(key, []).append((float(labels["le"]), value))
        counts = {
            tuple(labels.values()): value for labels, value in metrics.all(f"{family.name}_count")
        }
        assert {key: points[-1][1] for key, points in series.items()} == counts
        for points in series.values():
            assert points == sorted(points)
            assert [value for _, value in points] == sorted(value for _, value in points)
            assert points[-1][0] == float("inf")


def test_syncs_and_files(scraped: Reported) -> None:
    metrics = scraped.metrics
    syncs = metrics.sum("beanstalkd_sync_duration_seconds_count")
    assert syncs == metrics.sum("beanstalkd_binlog_syncs_total") > 10
    assert metrics.sum("beanstalkd_sync_entries_count") == syncs
    written = metrics.sum("beanstalkd_binlog_records_written_total")
    assert metrics.sum("beanstalkd_sync_entries_sum") == written
    assert 0 < metrics.sum("beanstalkd_sync_duration_seconds_sum") < 10 * syncs
    assert metrics.sum("beanstalkd_binlog_files") >= scraped.workers
    live = metrics.sum("beanstalkd_binlog_bytes", state="live")
    assert live > 0 and metrics.sum("beanstalkd_binlog_bytes", state="dead") > 0
    reserved = metrics.sum("beanstalkd_tube_jobs_reserved_total")
    assert metrics.sum("beanstalkd_job_queue_duration_seconds_count") == reserved > 0


def check_counters_never_decrease(before: Metrics, after: Metrics) -> None:
    """Check that no counter has decreased."""
    for family in before.families.values():
        for sample in family.samples:
            grows = family.type == "counter" or family.type == "histogram"
            if grows and not sample.name.startswith("beanstalkd_tube_"):
                now = after.sum(sample.name, **sample.labels)
                assert now >= sample.value, (sample.name, sample.labels)


@pytest.mark.slow
def test_counters_survive_a_killed_worker(tmp_path: Path) -> None:
    with watched("--workers=2", "-b", tmp_path) as server, server.server.connect() as client:
        sent: Counter[str] = Counter()
        for worker in range(2):
            busy(client, sent, next(tubes_of(worker, 2)))
        before = server.scrape()
        for pid in children(server.server.pid):
            os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: server.scrape().sum("beanstalkd_worker_restarts_total") == 2, 20)
        check_counters_never_decrease(before, server.scrape())
        assert eventually(lambda: server.scrape().sum("beanstalkd_worker_up") == 2, 20)
        after = server.scrape()
        check_counters_never_decrease(before, after)
        assert after.sum("beanstalkd_jobs", state="delayed") == 2
        name = "beanstalkd_sync_entries_sum"
        entries = after.sum("beanstalkd_binlog_records_written_total")
        assert before.sum(name) <= after.sum(name) <= entries
        with server.server.connect() as again:
            busy(again, sent, next(tubes_of(0, 2)))
        check_counters_never_decrease(after, server.scrape())


@pytest.mark.slow
def test_limits_and_rejections() -> None:
    """A limit that is not set has no metric."""
    limits = {
        "beanstalkd_connections_limit": 3,
        "beanstalkd_job_memory_limit_bytes": 1000,
        "beanstalkd_tubes_limit": 2,
    }
    with watched("--workers=2") as server:
        assert not server.scrape().names & set(limits)
    options = ("--max-connections=3", "--max-memory=1000", "--max-tubes=2", "--idle-timeout=0.3")
    with watched("--workers=2", *options) as server:
        with server.server.connect() as client:
            client.put()
            client.reserve()
            assert client.ask(b"put 0 0 9 900\r\n%b\r\n" % bytes(900)) == b"OUT_OF_MEMORY\r\n"
            assert client.ask(b"use first\r\n") == b"USING first\r\n"
            assert client.ask(b"use second\r\n") == b"OUT_OF_MEMORY\r\n"
            silent = [server.server.connect() for _ in range(5)]
            refused = "beanstalkd_connections_refused_total"
            assert eventually(lambda: server.scrape().sum(refused) == 3)
            timed_out = "beanstalkd_connections_timed_out_total"
            assert eventually(lambda: server.scrape().sum(timed_out) == 2, 10), vars(
                server.scrape()
            )
            for one in silent:
                one.close()
            metrics = server.scrape()
        for name, value in limits.items():
            assert metrics.sum(name) == value
        assert 1 < metrics.sum("beanstalkd_job_memory_bytes") < 300
        assert metrics.sum("beanstalkd_puts_refused_total") == 1
        assert metrics.sum("beanstalkd_puts_refused_total", reason="memory_limit") == 1
        assert metrics.sum("beanstalkd_tubes_refused_total") == 1


@pytest.mark.slow
def test_refused_puts_by_reason() -> None:
    """`core/test_refused_puts.py` has every reason."""
    with watched("--workers=2", "-z", "100") as server, server.server.connect() as client:
        for tube in tubes_of(0, 2), tubes_of(1, 2):
            client.ask(b"use %b\r\n" % next(tube))
            assert client.ask(b"put 0 0 9 101\r\n%b\r\n" % bytes(101)) == b"JOB_TOO_BIG\r\n"
        server.server.signal(signal.SIGUSR1)
        assert eventually(lambda: server.scrape().sum("beanstalkd_draining") == 1)
        assert client.ask(b"put 0 0 9 1\r\nx\r\n") == b"DRAINING\r\n"
        metrics = server.scrape()
    name = "beanstalkd_puts_refused_total"
    assert metrics.sum(name, reason="job_too_big") == 2
    assert metrics.sum(name, reason="draining") == 1
    assert metrics.sum(name) == 3
