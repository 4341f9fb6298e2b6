"""The formats of log lines: text, text for the journal, JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import eventually
from server.logging.records import JSON, records
from servers import Server, free_port, our_command, ours
from shards import kill_worker, worker_pids

from beanstalkd_py.server.logging.lines import LineFormatter, LogSource, escaped, leads_to_journal
from beanstalkd_py.server.logging.setup import fields
from beanstalkd_py.server.options import LOG_FORMATS

LEVELS = [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]
SOURCES = [LogSource(), LogSource(0), LogSource(3, several=True)]


def record(level: int, text: str, **values: object) -> logging.LogRecord:
    return logging.getLogger("beanstalkd_py").makeRecord(
        "beanstalkd_py", level, __file__, 1, "%s", (text,), None, extra=fields(**values)
    )


@given(
    st.sampled_from(LOG_FORMATS),
    st.sampled_from(SOURCES),
    st.booleans(),
    st.sampled_from(LEVELS),
    st.text(),
)
def test_a_record_is_one_printable_line(
    form: str, source: LogSource, journal: bool, level: int, text: str
) -> None:
    line = LineFormatter(form, source, journal).format(record(level, text, tube=text))
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line)
    if journal:
        expected = {10: "<7>", 20: "<6>", 30: "<4>", 40: "<3>", 50: "<2>"}[level]
        assert line.startswith(expected)
        line = line.removeprefix(expected)
    if form == "json":
        found = json.loads(line)
        assert (found["message"], found["tube"]) == (text, text)
        assert found["level"] == logging.getLevelName(level).lower()
        assert found["worker"] == ("parent" if source.worker is None else source.worker)
        assert found["pid"] == os.getpid()
    else:
        assert line.startswith("beanstalkd-py: worker 3: " if source.several else "beanstalkd-py: ")
        assert ("warning: " in line.removesuffix(text)) == (level == logging.WARNING)


@given(st.binary())
def test_escaping_is_reversible(data: bytes) -> None:
    text = escaped(data)
    assert text.isprintable() or not text
    assert text.encode().decode("unicode_escape").encode("latin-1") == data


def test_time_is_utc_with_microseconds() -> None:
    before = datetime.now(UTC)
    line = json.loads(LineFormatter("json", LogSource(), False).format(record(20, "x")))
    stamp = datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    slack = timedelta(microseconds=1)  # the clock is read as a float
    assert before - slack <= stamp <= datetime.now(UTC) + slack


def test_a_traceback_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = record(logging.CRITICAL, "it ends")
        found.exc_info = sys.exc_info()
    assert "\n" not in LineFormatter("text", LogSource(), False).format(found)
    line = json.loads(LineFormatter("json", LogSource(), False).format(found))
    assert "ValueError: two\nlines" in line["exception"]


def test_the_journal_is_the_stream_of_journal_stream(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as stream, (tmp_path / "b").open("w") as other:
        found = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert leads_to_journal(stream.fileno(), environ)
        assert not leads_to_journal(other.fileno(), environ)
        assert not leads_to_journal(stream.fileno(), {})
        assert not leads_to_journal(stream.fileno(), {"JOURNAL_STREAM": "nonsense"})
    assert not leads_to_journal(10_000, environ)


@pytest.mark.costly
@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.slow)])
def test_only_journal_lines_have_priorities(tmp_path: Path, form: str) -> None:
    for journal in (True, False):
        with (tmp_path / f"{form}-{journal}").open("w+") as reported:
            found = os.fstat(reported.fileno())
            stream = f"{found.st_dev}:{found.st_ino + (not journal)}"
            command = [*our_command(), "-l127.0.0.1", "-p", str(free_port()), "-VV"]
            process = subprocess.Popen(
                [*command, "--log-format", form, "--workers=2"],
                env=os.environ | {"JOURNAL_STREAM": stream},
                stdin=subprocess.DEVNULL,
                stderr=reported,
            )

            def lines(path: str = reported.name) -> list[str]:
                return Path(path).read_text().splitlines()

            assert eventually(lambda: any("worker 1 is ready" in one for one in lines()), 10)
            process.terminate()
            assert process.wait(10) == 0
            for line in lines():
                priority = "<5>" if "ready: " in line else "<6>"
                assert line.startswith(priority) == journal
                assert form == "text" or json.loads(line.removeprefix(priority))


@pytest.mark.costly
def test_json_records_of_a_servers_events() -> None:
    with ours("-V", *JSON, "--workers=2") as server:
        first, second = worker_pids(server)
        kill_worker(server, second)
        assert eventually(lambda: reported(server).count("worker 1 is ready") == 2, 10)
        server.signal(signal.SIGUSR1)
        assert eventually(lambda: "draining: puts are refused from now on" in reported(server))
        server.stop()
        found = records(server)
    by_pid = {(one["worker"], one["pid"]) for one in found}
    assert ("parent", server.pid) in by_pid
    assert by_pid <= {("parent", server.pid), (0, first), (1, second)} | {
        (1, one["pid"]) for one in found
    }
    errors = [one for one in found if one["level"] == "error"]
    assert [f"worker 1 (pid {second}) was killed by signal 9" in e["message"] for e in errors] == [
        True
    ]
    assert [one["worker"] for one in found if one["message"] == "stopping"] == ["parent"]


def reported(server: Server) -> list[str]:
    return [one["message"] for one in records(server)]
