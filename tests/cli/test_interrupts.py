"""Ctrl-C during import, move and truncate: status 130 and exact counts."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cli.operator import CommandResult, Operator
from servers import ours
from wire import Client, in_tube

from beanstalkd_py.admin.connection import Connection, Reply
from beanstalkd_py.control.client import ControlClient

JOBS = 300
INTERRUPTED = 130
AT = [1, 5, 131, 200, 259, 420, 560]
"""Replies before the signal."""


@contextmanager
def ctrl_c_after(replies: int, times: int = 1) -> Iterator[None]:
    """Raise SIGINT after `replies` replies, `times` times."""
    read, seen = Connection._read_reply, 0

    def counting(self: Connection) -> Reply:
        nonlocal seen
        reply = read(self)
        seen += 1
        if replies <= seen < replies + times:
            signal.raise_signal(signal.SIGINT)
        return reply

    with mock.patch.object(Connection, "_read_reply", counting):
        yield


def ready_in(client: Client, tube: str) -> int:
    reply = client.ask(b"stats-tube %b\r\n" % tube.encode())
    found = re.search(rb"current-jobs-ready: (\d+)", reply)
    return int(found[1]) if found else 0


def number_in(pattern: str, result: CommandResult) -> int:
    found = re.search(pattern, result.errors[-1])
    assert found, result
    return int(found[1])


IN_A_CALLBACK = """
import importlib, signal, sys, weakref
class Passing: pass
def interrupting(name, package=None, original=importlib.import_module):
    passing = Passing()
    kept = weakref.ref(passing, lambda _: signal.raise_signal(signal.SIGINT))
    del passing
    return original(name, package)
importlib.import_module = interrupting
from beanstalkd_py.cli.main import main
main(["config", "show"])
"""


def test_an_interrupt_in_a_callback_of_an_import() -> None:
    """Python itself would write "Exception ignored in" and continue."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")
    assert done.stderr == "beanstalkd-py: interrupted\n"


LINES = b"".join(json.dumps({"body": str(i)}).encode() + b"\n" for i in range(JOBS))


@pytest.mark.parametrize("at", AT)
def test_import_continues_after_an_interrupt(
    operator: Operator, wire: Client, name: str, at: int
) -> None:
    with ctrl_c_after(at):
        result = operator.try_("import", name, stdin=LINES)
    if result.status == 0:
        assert at > JOBS
    else:
        assert result.status == INTERRUPTED
        put = number_in(r"^interrupted; put (\d+) jobs?, continue with --skip", result)
        assert ready_in(wire, name) == put
        skip = number_in(r"--skip (\d+)$", result)
        operator.do("import", name, "--skip", skip, stdin=LINES)
    bodies = [record["body"] for record in operator.do("export", name).json_lines]
    assert bodies == [str(i) for i in range(JOBS)]


def test_import_interrupted_twice_reports_the_minimum(
    operator: Operator, wire: Client, name: str
) -> None:
    with ctrl_c_after(200, times=2):
        result = operator.try_("import", name, stdin=LINES)
    assert result.status == INTERRUPTED
    sure = number_in(
        r"^interrupted; processed (\d+) lines?; jobs of the next lines may have been put", result
    )
    assert 0 < sure <= ready_in(wire, name)


@pytest.mark.parametrize("limit", [None, 290])
@pytest.mark.parametrize("at", AT)
def test_move_continues_after_an_interrupt(
    operator: Operator, wire: Client, name: str, at: int, limit: int | None
) -> None:
    operator.do("import", name, stdin=LINES)
    there = f"{name}.there"
    words = ["move", name, there, *(["--limit", str(limit)] if limit else [])]
    with ctrl_c_after(at):
        result = operator.try_(*words)
    assert result.status == INTERRUPTED
    moved = number_in(r"^interrupted; moved (\d+) jobs?; run the same command", result)
    assert (ready_in(wire, name), ready_in(wire, there)) == (JOBS - moved, moved)
    rest = []
    if limit:
        rest = ["--limit", str(number_in(r"with --limit (\d+)", result))]
    operator.do("move", name, there, *rest)
    assert ready_in(wire, there) == (limit or JOBS)


@pytest.mark.parametrize("at", AT)
def test_interrupted_truncate_reports_deleted_jobs(
    operator: Operator, wire: Client, name: str, at: int
) -> None:
    operator.do("import", name, stdin=LINES)
    # As with a server that has no control socket.
    with (
        mock.patch("beanstalkd_py.admin.local_control.connect_control", return_value=None),
        ctrl_c_after(at),
    ):
        result = operator.try_("truncate", name, "--yes")
    assert result.status == INTERRUPTED
    if result.errors[-1] == "interrupted":
        assert ready_in(wire, name) == JOBS  # the interrupt came before the first delete
    else:
        deleted = number_in(r"^interrupted; deleted (\d+) jobs? of tube", result)
        assert ready_in(wire, name) == JOBS - deleted
    operator.do("truncate", name, "--yes")
    assert ready_in(wire, name) == 0


ONE_JOB_AT_A_TIME = """
from beanstalkd_py.server.control import admin_commands
admin_commands.STEP_JOBS = admin_commands.PROGRESS_JOBS = 1
from beanstalkd_py.cli.main import main
main()
"""


def test_the_server_stops_truncating(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops truncating and reports the number of deleted jobs.

    It reports each deleted job. With its normal steps it may finish before the stop request.
    """
    command = [sys.executable, "-c", ONE_JOB_AT_A_TIME, "serve"]
    monkeypatch.setenv("TEST_SERVER_COMMAND", shlex.join(command))
    answers, before = ControlClient._answers, 20_000

    def interrupting(self: ControlClient, request: str, details: Any) -> Iterator[Any]:
        for number, message in enumerate(answers(self, request, details)):
            if number == 0 and request == "truncate":
                signal.raise_signal(signal.SIGINT)
            yield message

    with ours("--workers", "2") as server, server.connect() as client:
        operator = Operator(f"127.0.0.1:{server.port}")
        in_tube(client, b"many")
        for _ in range(before // 1000):
            client.send(b"put 0 0 60 1\r\nx\r\n" * 1000)
            client.replies(1000)
        with mock.patch.object(ControlClient, "_answers", interrupting):
            result = operator.try_("truncate", "many", "--yes")
        assert result.status == INTERRUPTED
        deleted = number_in(r"^interrupted; deleted (\d+) jobs? of tube many; run", result)
        assert 0 < deleted < before
        assert ready_in(client, "many") == before - deleted
        assert operator.do("truncate", "many", "--yes").lines == [
            f"deleted {before - deleted} jobs of tube many"
        ]


MANY = 30_000


def lines_of(text: bytes) -> str:
    return text.decode().splitlines()[-1].removeprefix("beanstalkd-py: ")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["import", "move", "truncate"])
def test_a_real_ctrl_c_at_a_random_moment(
    operator: Operator, wire: Client, name: str, tmp_path: Path, command: str
) -> None:
    """Counts are exact at any moment."""
    file = tmp_path / "jobs"
    file.write_bytes(b"".join(b'{"body": "%d"}\n' % i for i in range(MANY)))
    there = f"{name}.there"
    words = {
        "import": ["import", name, str(file)],
        "move": ["move", name, there],
        "truncate": ["truncate", "--yes", name],
    }[command]
    if command != "import":
        operator.do("import", name, str(file))
    done = interrupted = 0
    environment = {"BEANSTALKD_CONTROL": str(tmp_path / "no-such-socket")}
    for _ in range(5):
        extra = ["--skip", str(done)] if command == "import" else []
        begun = ready_in(wire, name)
        process = operator.start(
            *words, *extra, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        while ready_in(wire, name) == begun and process.poll() is None:
            time.sleep(0.01)
        time.sleep(random.random() / 20)
        process.send_signal(signal.SIGINT)
        out, result = process.communicate(timeout=60)
        if out and process.returncode in (
            0,
            -signal.SIGINT,
        ):  # the command finished before the interrupt
            done = MANY
            break
        assert process.returncode == INTERRUPTED, result
        interrupted += 1
        found = re.match(r"interrupted; (?:put|moved|deleted) (\d+) jobs?", lines_of(result))
        assert found, result
        done += int(found[1])
        assert ready_in(wire, name) == (done if command == "import" else MANY - done)
        assert ready_in(wire, there) == (done if command == "move" else 0)
        if command == "import":
            assert lines_of(result).endswith(f"continue with --skip {done}")
    assert interrupted > 0
    operator.do(*words, *(["--skip", str(done)] if command == "import" else []))
    left = MANY if command == "import" else 0
    assert ready_in(wire, name) == left
    assert ready_in(wire, there) == (MANY if command == "move" else 0)


# --- before a command runs ------------------------------------------------------------------------

INTERRUPTED_IMPORT = """
import sys

wanted = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, *rest):
        if name == wanted:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from beanstalkd_py.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("click", ["stats"]),
        ("beanstalkd_py.cli.main", ["stats"]),
        ("beanstalkd_py.cli.server.tubes", ["stats"]),
        ("beanstalkd_py.cli.server.fast_parse", ["serve"]),
        ("beanstalkd_py.server.parent.start", ["serve"]),
        ("beanstalkd_py.cli.server.serve", ["serve", "--config", "nowhere"]),
    ],
)
def test_while_modules_are_imported(module: str, words: list[str]) -> None:
    command = [sys.executable, "-P", "-c", INTERRUPTED_IMPORT, module, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == INTERRUPTED
    assert done.stderr.strip() == "beanstalkd-py: interrupted"
