"""`top`: contents, keys, output without a terminal, and restoring the terminal."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click
import pytest
from cli.operator import Operator
from cli.top.screens import Screen, screen
from processes import eventually
from servers import Server, free_port, ours, reference
from wire import Client, in_tube

from beanstalkd_py.cli.top.command import top
from beanstalkd_py.cli.top.table import COLUMNS, columns_for

Watch = Callable[..., Screen]
HEAD = 4
SHOWN = 24 - HEAD - 2
"""Tubes in a terminal of 24 lines."""


@contextmanager
def watching(server: Server) -> Iterator[Watch]:
    """Start `top` with a short interval."""
    with ExitStack() as stack:

        def start(*words: str | int, **settings: int) -> Screen:
            place = ("--addr", f"127.0.0.1:{server.port}", "--interval", "0.2")
            return stack.enter_context(screen("top", *place, *words, **settings))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def watch(server: Server) -> Iterator[Watch]:
    with watching(server) as start:
        yield start


@pytest.fixture
def watch_either(either: Server) -> Iterator[Watch]:
    with watching(either) as start:
        yield start


def column(shown: Screen, heading: str, tube: str) -> str:
    """Return a tube's value under a heading; "" if either is missing or truncated.

    The screen is read while it is drawn: a new heading may be above an old row.
    """
    row = shown.row(tube)
    headings = shown.row("tube")
    return row[headings.index(heading)] if len(row) == len(headings) and heading in headings else ""


@pytest.mark.costly
def test_counters_and_rates_of_a_tube(watch_either: Watch, wire: Client, name: str) -> None:
    shown = watch_either("--filter", name)
    shown.wait_for("1-1 of 1")
    assert shown.lines[HEAD].endswith("oldest")
    jobs = [wire.put() for _ in range(5)]
    wire.put(delay=100)
    wire.reserve()
    wire.bury(jobs[-1])
    headings = ("ready", "reserved", "delayed", "buried", "wait")
    shown.wait_until(
        lambda: [column(shown, one, name) for one in headings] == ["3", "1", "1", "1", "0"]
    )
    known = "control socket" not in shown.text
    shown.wait_until(lambda: column(shown, "oldest", name) not in ("", "-") or not known)
    assert known or column(shown, "oldest", name) == "-"

    # Put, reserve and delete until a survey sees it.
    def busy() -> bool:
        for _ in range(20):
            wire.put(pri=0)
            wire.ask(b"delete %d\r\n" % wire.reserve())
        rates = [column(shown, heading, name) for heading in ("put/s", "del/s", "res/s")]
        return all(rate not in ("", "0", "-") for rate in rates[: 2 + known])

    shown.wait_until(busy)
    shown.type("q")
    assert shown.end() == 0


def test_sorting_filtering_scrolling(server: Server, watch: Watch, tube: bytes) -> None:
    prefix = tube.decode()
    with server.connect() as client:
        for number in range(40):
            client.ask(b"use %b.%02d\r\n" % (tube, number))
            for _ in range(number % 7):
                client.put()
    names = [f"{prefix}.{number:02}" for number in range(40)]
    by_ready = sorted(names, key=lambda name: (-(int(name[-2:]) % 7), name))
    by_ready = [name for name in by_ready if int(name[-2:]) % 7]

    shown = watch("--interval", "100")

    def table() -> list[str]:
        return [line.split()[0] for line in shown.lines[HEAD + 1 : -1] if line]

    def expect(tubes: list[str]) -> None:
        shown.wait_until(lambda: table() == tubes)

    shown.type(f"/{prefix}.\r")
    expect(by_ready[:SHOWN])
    shown.type("t")
    expect([name for name in names if name in by_ready][:SHOWN])
    shown.type("R")
    expect([name for name in reversed(names) if name in by_ready][:SHOWN])
    shown.type("R\x1b[6~")  # Page Down
    listed = [name for name in names if name in by_ready]
    expect(listed[-SHOWN:] if len(listed) < 2 * SHOWN else listed[SHOWN : 2 * SHOWN])
    shown.type("\x1b[1~\x1bOB")  # Home, Down
    expect(listed[1 : SHOWN + 1])
    shown.type("<>>")  # from the first column to the second
    shown.wait_for("by puts")
    shown.type(f"/\x15{prefix}.?3\rt")
    expect([name for name in listed if name.endswith("3")])
    assert f"filter {prefix}.?3" in shown.text
    shown.type("\x1b")
    shown.wait_until(lambda: "with" not in shown.lines[-1])
    shown.type("/nobody has this\r")
    shown.wait_for("0-0 of 0")


def test_help_a_pause_and_another_interval(watch: Watch, client: Client, name: str) -> None:
    shown = watch("--filter", name)
    shown.wait_for("1-1 of 1")
    shown.type("?")
    shown.wait_for("press any key to return")
    shown.type("x")
    shown.wait_until(lambda: "1-1 of 1" in shown.text)
    shown.type(" ")
    shown.wait_for("PAUSED")
    client.put()
    clock = shown.lines[0]
    shown.wait_until(lambda: not shown._read(0.5))
    assert shown.lines[0] == clock
    assert column(shown, "ready", name) == "0"
    shown.type(" ")
    shown.wait_until(lambda: column(shown, "ready", name) == "1")
    shown.type("sxx\r")
    shown.wait_for("invalid interval")
    shown.type("s7.5\r")
    shown.wait_for("every 7.5 s")
    shown.type("z")
    shown.wait_for("press ? for help")


def test_another_size(watch: Watch, client: Client, name: str) -> None:
    client.put()
    shown = watch("--filter", name, columns=140)
    shown.wait_for("1-1 of 1")
    assert "total" in shown.lines[HEAD]
    shown.resize(60, 12)
    shown.wait_until(lambda: "buried" not in shown.lines[HEAD] and "ready" in shown.lines[HEAD])
    shown.wait_until(lambda: column(shown, "ready", name) == "1")
    shown.resize(20, 4)
    shown.resize(100, 30)
    shown.wait_until(lambda: "q: quit" in shown.lines[29] and column(shown, "ready", name) == "1")


@pytest.mark.parametrize(
    ("end", "status"),
    [("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), ("q", 0)],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP", "q"],
)
def test_terminal_is_restored_at_exit(watch: Watch, end: str | signal.Signals, status: int) -> None:
    shown = watch()
    shown.wait_for("q: quit")
    if isinstance(end, signal.Signals):
        shown.process.send_signal(end)
    else:
        shown.type(end)
    assert shown.end() == status
    assert b"Traceback" not in shown.raw


def test_ctrl_z_and_fg(server: Server) -> None:
    """A stop restores the terminal; `fg` redraws the screen."""
    command = [sys.executable, "-m", "beanstalkd_py", "top", "--addr", f"127.0.0.1:{server.port}"]
    opened = Screen(["bash", "--norc", "-i"], PS1="prompt> ")
    try:
        opened.wait_for("prompt>")
        opened.type(f"{shlex.join(command)}\n")
        opened.wait_for("q: quit")
        opened.type("\x1a")
        opened.wait_until(lambda: "Stopped" in opened.text and "prompt>" in opened.text)
        opened.type("fg\n")
        opened.wait_until(lambda: "q: quit" in opened.lines[-1] and "tube" in opened.lines[HEAD])
        opened.type("q")
        opened.wait_until(lambda: opened.lines[-1] == "" or "prompt>" in opened.text)
        opened.type("stty | tr '\\n' ' '; echo; exit\n")
        opened.wait_until(lambda: opened.process.poll() is not None)
        assert "-echo" not in opened.text
    finally:
        opened.close()


@pytest.mark.costly
@pytest.mark.parametrize(
    "start", [ours, pytest.param(reference, marks=pytest.mark.slow)], ids=["ours", "C"]
)
def test_reconnect_after_server_restart(start: Callable[..., object]) -> None:
    with ours() as server:
        port = server.port
        with screen("top", "--addr", f"127.0.0.1:{port}", "--interval", "0.2") as shown:
            shown.wait_for("q: quit")
            server.stop()
            shown.wait_for("no server at")
            assert shown.row("default")  # the last values stay visible
            again = Server([*_command(start), "-l", "127.0.0.1", "-p", str(port)], port, {})
            try:
                shown.wait_for("q: quit")
                shown.type("q")
                assert shown.end() == 0
            finally:
                again.stop()


def _command(start: Callable[..., object]) -> list[str]:
    from servers import our_command, reference_command

    return our_command() if start is ours else reference_command()


def test_missing_server_and_unknown_terminal(server: Server) -> None:
    with screen("top", "--addr", f"127.0.0.1:{free_port()}") as shown:
        assert shown.end() == 2
        assert "no server at" in shown.text
    with screen("top", "--addr", f"127.0.0.1:{server.port}", TERM="no-such-thing") as shown:
        assert shown.end() == 2
        assert "set TERM" in shown.text


def test_json_for_programs(operator: Operator, wire: Client, name: str) -> None:
    process = operator.start(
        *("top", "--json", "--interval", "0.3", "--count", 3, "--filter", name),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert [row["tube"] for row in first["tubes"]] == [name]
    assert first["tubes"][0]["puts_per_s"] is None
    assert first["per_s"]["puts"] is None
    for _ in range(30):
        wire.put()
    later = [json.loads(line) for line in process.stdout]
    assert process.wait(20) == 0
    process.stdout.close()
    assert len(later) == 2
    known = later[-1]["workers"] is not None
    (row,) = later[-1]["tubes"]
    assert (row["ready"], row["total"]) == (30, 30)
    assert (row["oldest_ready_s"] is not None) == known
    assert later[-1]["server"]["current-jobs-ready"] >= 30
    # All puts fall between two surveys; rates use the actual time.
    times = [one["at"] for one in (first, *later)]
    put = sum(
        one["tubes"][0]["puts_per_s"] * (now - before)
        for one, before, now in zip(later, times, times[1:], strict=False)
    )
    assert put == pytest.approx(30, rel=0.2)


def test_plain_text_in_a_pipe(operator: Operator, wire: Client, name: str) -> None:
    wire.put()
    result = operator.do("top", "--count", 1, "--filter", name)
    assert b"\x1b" not in result.out
    headings = next(line.split() for line in result.lines if line.startswith("tube"))
    row = next(line.split() for line in result.lines if line.startswith(f"{name} "))
    assert dict(zip(headings, row, strict=True))["ready"] == "1"
    assert operator.do("top", "--count", 1, "--limit", 1, "--json").json["tubes"][0]["ready"] >= 1


def test_control_socket_of_another_server_is_ignored(tmp_path: object) -> None:
    """C beanstalkd on 127.0.0.2, ours on 127.0.0.1, both on one port."""
    with ours() as server:
        other = Server(
            [*_command(reference), "-l", "127.0.0.2", "-p", str(server.port)], server.port, {}
        )
        try:
            far = Operator(f"127.0.0.2:{server.port}")
            assert eventually(lambda: far.try_("top", "--count", 1).status == 0, 10)
            with in_tube(server.connect(), b"only-ours"):
                assert far.do("top", "--count", 1, "--json").json["workers"] is None
                near = Operator(f"127.0.0.1:{server.port}").do("top", "--count", 1, "--json").json
                assert near["workers"] is not None
                assert "only-ours" in [row["tube"] for row in near["tubes"]]
        finally:
            other.stop()


def test_missing_control_socket_is_an_error(operator: Operator) -> None:
    assert "control socket" in operator.fail(2, "top", "--count", 1, "--control", os.devnull)


def test_every_column_can_be_sorted_by() -> None:
    (sort,) = (param.type for param in top.params if param.name == "sort")
    assert isinstance(sort, click.Choice)
    assert [column.name for column in COLUMNS] == list(sort.choices)


@pytest.mark.costly
def test_names_get_space_before_optional_columns() -> None:
    fitting = {width: columns_for(width) for width in range(80, 300)}
    for width, columns in fitting.items():
        assert sum(column.width for column in columns) + len(columns) - 1 <= width
        usual = columns[-1].name == "oldest"
        assert columns[0].width >= (12 if usual else 28)
    counts = [len(columns) for columns in fitting.values()]
    assert counts == sorted(counts)
    assert counts[-1] == len(COLUMNS) > counts[0]
