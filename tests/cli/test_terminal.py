"""Commands on a terminal and in a pipe: tables, --watch, questions, Ctrl-C, the pager."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.operator import Operator
from history.finished import finished, make_store
from processes import eventually
from wire import Client

ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
LIMIT_S = 10.0
ALONE = Operator("127.0.0.1:1")
"""An operator for commands that need no server."""


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal of 40 lines."""

    def __init__(
        self, operator: Operator, *words: str | int, columns: int, env: dict[str, str]
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = operator.start(
            *words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm", **env},
            # Ctrl-C goes to the session of the terminal.
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.raw = b""

    @property
    def text(self) -> str:
        return ESCAPE.sub(b"", self.raw).decode().replace("\r\n", "\n")

    def wait_for(self, words: str, times: int = 1) -> None:
        end = time.monotonic() + LIMIT_S
        while self.text.count(words) < times:
            assert self._read(end), f"no {words!r} in {self.text!r}"

    def type(self, keys: str) -> None:
        # A signal between a prompt and the read that follows would wait for another key.
        assert eventually(lambda: reads_a_terminal(self.process.pid), LIMIT_S)
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        end = time.monotonic() + LIMIT_S
        while self._read(end):
            pass
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self._ours)

    def _read(self, end: float) -> bool:
        if not select.select([self._ours], [], [], max(0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            # No process has the other side open.
            return False
        self.raw += data
        return bool(data)


def reads_a_terminal(pid: int) -> bool:
    """Return whether a process is sleeping and uses no CPU."""

    def state() -> tuple[str, str]:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = Path(f"/proc/{pid}/schedstat").read_text()
        return words[0], used

    first = state()
    time.sleep(0.02)
    return first[0] == "S" and state() == first


@contextmanager
def terminal(
    operator: Operator, *words: str | int, columns: int = 120, **env: str
) -> Iterator[Terminal]:
    opened = Terminal(operator, *words, columns=columns, env=env)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.costly
def test_a_table_on_a_terminal_and_in_a_pipe(operator: Operator, wire: Client, name: str) -> None:
    wire.put()
    with terminal(operator, "tubes") as screen:
        assert screen.end() == 0
        assert b"\x1b[" in screen.raw
        assert name in screen.text
        assert max(map(len, screen.text.splitlines())) <= 120
    done = operator.start("tubes", stdout=subprocess.PIPE, env={"TERM": "xterm"})
    out, _ = done.communicate(timeout=LIMIT_S)
    assert name.encode() in out
    assert b"\x1b" not in out


@pytest.mark.costly
def test_narrow_terminal_truncates_no_number(operator: Operator, wire: Client, name: str) -> None:
    """Columns of zeros are omitted first; then lines exceed the terminal's width."""
    for _ in range(3):
        wire.put()
    for columns in (70, 20):
        with terminal(operator, "tubes", columns=columns) as screen:
            assert screen.end() == 0
        lines = [line.split() for line in screen.text.splitlines()]
        headings = next(line for line in lines if line[:1] == ["tube"])
        row = next(line for line in lines if line[:1] == [name])
        assert "paused_s" not in headings
        assert dict(zip(headings, row, strict=True))["ready"] == "3"
        assert columns == 20 or max(map(len, screen.text.splitlines())) <= columns


def test_no_color(operator: Operator, wire: Client) -> None:
    wire.put()
    with terminal(operator, "tubes", "--watch", "0.1", NO_COLOR="1") as screen:
        screen.wait_for("every 0.1 s", times=2)
        assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", screen.raw)


def test_watch(operator: Operator, wire: Client) -> None:
    """--watch redraws the screen, marks changes, and ends with Ctrl-C."""
    with terminal(operator, "stats", "--watch", "0.2") as screen:
        screen.wait_for("every 0.2 s")
        for _ in range(10):
            wire.put()
        screen.wait_for("total-jobs", times=3)
        rates = re.findall(r"total-jobs\s+\d+\s+\+(\d+)\.\d", screen.text)
        # 50 per second if all came between two surveys on an idle machine
        assert any(1 <= int(rate) <= 60 for rate in rates), screen.text
        assert screen.raw.count(b"\x1b[2J") == 1
        assert screen.raw.count(b"\x1b[H") >= 3
        assert all(len(part.splitlines()) <= 40 for part in screen.raw.split(b"\x1b[H"))
        screen.type("\x03")
        assert screen.end() == 130
        assert screen.text.rstrip().endswith("beanstalkd-py: interrupted")


def test_watch_in_a_pipe(operator: Operator) -> None:
    process = operator.start("stats", "--watch", "0.1", stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = []
    while sum(b"total-jobs" in line for line in lines) < 3:
        lines.append(process.stdout.readline())
    process.stdout.close()
    assert process.wait(LIMIT_S) == 141
    assert not any(b"\x1b" in line for line in lines)


@pytest.mark.slow
def test_truncate_asks_for_confirmation(operator: Operator, wire: Client, name: str) -> None:
    tube = f"stats-tube {name}".encode()
    wire.put()
    wire.put(delay=9)
    question = f"Delete 2 jobs (1 ready, 1 delayed, 0 buried) of tube {name} on {operator.address}?"
    for answer, status in (("n\r", 1), ("\r", 1), ("\x03", 130), ("\x04", 130)):
        with terminal(operator, "truncate", name) as screen:
            screen.wait_for(f"{question} [y/N]: ")
            screen.type(answer)
            assert screen.end() == status, screen.text
        assert wire.stats(tube)["current-jobs-ready"] == "1"
    with terminal(operator, "truncate", name) as screen:
        screen.wait_for("[y/N]: ")
        screen.type("y\r")
        assert screen.end() == 0
        assert f"deleted 2 jobs of tube {name}" in screen.text
    assert wire.stats(tube)["current-jobs-ready"] == "0"


def test_control_characters_of_a_body_are_escaped(operator: Operator, wire: Client) -> None:
    job = wire.put(b"\x1b]0;owned\x07\xff\x9b2J\xc2\x9b3J\r\n\tend\xe2\x80\xae")
    with terminal(operator, "peek", job) as screen:
        assert screen.end() == 0
        assert b"\x1b" not in screen.raw
        assert b"\x07" not in screen.raw
        assert b"\x9b" not in screen.raw
        assert r"\x1b]0;owned\x07\xff\x9b2J\x9b3J" in screen.text
        assert r"end\u202e" in screen.text


def test_ctrl_c_during_reserve(operator: Operator, wire: Client, name: str) -> None:
    with terminal(operator, "reserve", "--tube", name) as screen:
        end = time.monotonic() + LIMIT_S
        while wire.stats(b"stats-tube " + name.encode())["current-waiting"] != "1":
            assert time.monotonic() < end
        screen.type("\x03")
        assert screen.end() == 130
        assert "Traceback" not in screen.text


@pytest.mark.slow
def test_replay_has_a_progress_bar_only_on_a_terminal(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(60)])
    words = ("history", "--store", str(store), "replay", "mails", "--into", name)
    home = str(tmp_path / "state")
    with terminal(operator, *words, "--rate", 200, XDG_STATE_HOME=home) as screen:
        screen.wait_for("of 60 messages")
        assert screen.end() == 0
        assert screen.text.rstrip().splitlines()[-1].endswith(f"put 60 jobs of mails into {name}")
    done = operator.start(
        *words, "--restart", stdout=subprocess.PIPE, stderr=-1, env={"XDG_STATE_HOME": home}
    )
    assert done.communicate(timeout=LIMIT_S) == (
        f"put 60 jobs of mails into {name}\n".encode(),
        b"",
    )


@pytest.mark.costly
@pytest.mark.parametrize("words", [("ls",), ("query", "mails", "3")])
def test_history_ls_uses_the_pager(tmp_path: Path, words: tuple[str, ...]) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(60)])
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged with $LESS\ncat\n")
    pager.chmod(0o755)
    command = ("history", "--store", str(store), *words)
    with terminal(ALONE, *command, PAGER=str(pager)) as screen:
        assert screen.end() == 0
        shown = screen.text.splitlines()
        assert shown[0] == "paged with FRSX"
        assert shown[1].split()[0] == "offset"
        assert len(shown) == (62 if words[0] == "ls" else 3)
    done = ALONE.start(*command, stdout=subprocess.PIPE, env={"PAGER": str(pager)})
    out, _ = done.communicate(timeout=LIMIT_S)
    assert out.decode().splitlines() == shown[1:]


@pytest.mark.costly
def test_closed_pager_ends_the_list(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(2000)])
    command = ("history", "--store", str(store), "ls")
    with terminal(ALONE, *command, PAGER="head -n 5") as screen:
        assert screen.end() == 0
        assert len(screen.text.splitlines()) == 5


def test_damage_is_reported_after_the_pager(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(60)])
    path = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF
    path.write_bytes(data)
    with terminal(ALONE, "history", "--store", str(store), "ls", "mails", PAGER="cat") as screen:
        assert screen.end() == 1
        assert "no sound message is" in screen.text.splitlines()[-1]
