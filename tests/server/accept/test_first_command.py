"""The worker of a connection, from the first bytes that it sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.server.accept.first_command import LINE_BYTES, Hint, tube_of_first_command

INCOMPLETE, ANYWHERE = Hint.INCOMPLETE, Hint.ANYWHERE


@pytest.mark.parametrize(
    ("line", "tube"),
    [
        (b"use a", b"a"),
        (b"watch a-b", b"a-b"),
        (b"ignore a", b"a"),
        (b"stats-tube a", b"a"),
        (b"pause-tube a 10", b"a"),
        (b"pause-tube   a 10", b"a"),
        (b"use default", b"default"),
        (b"use " + b"x" * 200, b"x" * 200),
        (b"use +/;.$_()-9", b"+/;.$_()-9"),
    ],
)
def test_a_command_that_names_a_tube(line: bytes, tube: bytes) -> None:
    assert tube_of_first_command(line + b"\r\n", False) == tube


@pytest.mark.parametrize(
    "data",
    [
        b"put 0 0 1 1\r\nx\r\n",
        b"put 0 0 1 100000\r\nthe body is still to come",
        b"reserve\r\n",
        b"reserve-with-timeout 10\r\n",
        b"reserve-batch 10 10\r\n",
        b"peek-ready\r\n",
        b"peek-delayed\r\n",
        b"peek-buried\r\n",
        b"kick 10\r\n",
        b"with delay-ms=1\r\nput 0 0 1 1\r\nx\r\n",
    ],
)
def test_a_command_on_the_used_tube_means_the_default_tube(data: bytes) -> None:
    assert tube_of_first_command(data, False) == b"default"


@pytest.mark.parametrize(
    "line",
    [
        *(b"peek 1", b"delete 1", b"release 1 0 0", b"bury 1 0", b"touch 1", b"kick-job 1"),
        *(
            b"reserve-job 1",
            b"reserve-abort",
            b"wait 1 1",
            b"stats-job 1",
            b"stats",
            b"list-tubes",
            b"list-tube-used",
        ),
        *(b"list-tubes-watched", b"quit", b"", b"\0", b"USE a", b"use", b"use ", b"use  a"),
        *(b"use -a", b"use a ", b"use a b", b"use " + b"x" * 201, b"use \xe9", b"reserved"),
        *(b"pause-tube", b"stats-tube", b"stats-tube -", b"no-such-command"),
    ],
)
def test_a_command_without_a_tube_goes_anywhere(line: bytes) -> None:
    assert tube_of_first_command(line + b"\r\n", False) is ANYWHERE


@pytest.mark.parametrize(
    ("data", "tube"),
    [
        (b"use a\r\nwatch b\r\nignore default\r\n", b"b"),
        (b"watch b\r\nignore default\r\nuse a\r\n", b"a"),
        (b"ignore x\r\nwatch b\r\n", b"b"),
        (b"ignore x\r\nput 0 0 1 1\r\nx\r\n", b"x"),
        (b"use a\r\nput 0 0 1 7\r\nwatch b\r\n", b"a"),
        (b"use a\r\nstats-tube b\r\nuse c\r\n", b"a"),
        (b"use a\r\nnonsense\r\nuse c\r\n", b"a"),
        (b"use a\r\nwatch b", b"a"),
        (b"stats-tube b\r\nuse c\r\n", b"b"),
        (b"put 0 0 1 7\r\nuse abc\r\n", b"default"),
    ],
)
def test_the_last_of_several_use_and_watch_decides(data: bytes, tube: bytes) -> None:
    assert tube_of_first_command(data, False) == tube


@pytest.mark.parametrize("data", [b"u", b"use a", b"use a\r", b"use a\n", b"x" * (LINE_BYTES - 1)])
def test_an_incomplete_line_is_incomplete(data: bytes) -> None:
    assert tube_of_first_command(data, False) is INCOMPLETE


def test_a_line_that_cannot_be_completed_goes_anywhere() -> None:
    assert tube_of_first_command(b"use a", True) is ANYWHERE
    assert tube_of_first_command(b"x" * LINE_BYTES, False) is ANYWHERE


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_have_a_result(data: bytes, ended: bool) -> None:
    found = tube_of_first_command(data, ended)
    if ended or len(data) >= LINE_BYTES or b"\r\n" in data:
        assert found is not INCOMPLETE
