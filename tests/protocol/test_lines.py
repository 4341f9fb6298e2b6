"""Where a command line ends, how long it may be, and which command a line is."""

from __future__ import annotations

import pytest
from wire import FENCE, FENCE_REPLY, Client, Connect

UNKNOWN = b"UNKNOWN_COMMAND\r\n"
BAD = b"BAD_FORMAT\r\n"
MAX_LINE = 222  # characters, without CR LF
LONG_LENGTHS = [224, 300, 445, 1000, 100_000]


def answers(client: Client, line: bytes, reply: bytes) -> bool:
    """The line gets exactly this one reply, and the next command is parsed correctly."""
    client.send(line + b"\r\n" + FENCE)
    assert client.replies(2) == [reply, FENCE_REPLY]
    return True


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"nosuch",
        b" stats",
        b"STATS",
        b"Put 0 0 1 0",
        b"\n",
        b"truncate-tube x",
        b"put",
        b"peek",
        b"peek-",
        b"delete",
        b"release",
        b"bury",
        b"touch",
        b"kick",
        b"kick-job",
        b"use",
        b"watch",
        b"ignore",
        b"list",
        b"list-tube",
        b"reserv",
        b"stat",
        b"pause-tub",
    ],
)
def test_unknown_words(client: Client, line: bytes) -> None:
    assert answers(client, line, UNKNOWN)


@pytest.mark.parametrize(
    "line",
    [
        b"peek-ready",
        b"peek-delayed",
        b"peek-buried",
        b"reserve",
        b"stats",
        b"list-tubes",
        b"list-tube-used",
        b"list-tubes-watched",
    ],
)
@pytest.mark.parametrize("garbage", [b" ", b"x", b" x", b"\n", b"-x"])
def test_words_without_arguments_take_nothing_after_them(
    client: Client, line: bytes, garbage: bytes
) -> None:
    assert answers(client, line + garbage, BAD)


@pytest.mark.parametrize(
    "line",
    [
        b"statsx",
        b"stats-job",
        b"stats-tube",
        b"reserve-job",
        b"reserve-with-timeout",
        b"reserve-mode x",
        b"list-tubesx",
        b"pause-tube",
    ],
)
def test_a_longer_word_is_its_known_prefix_with_garbage(client: Client, line: bytes) -> None:
    assert answers(client, line, BAD)


@pytest.mark.parametrize("line", [b"quit", b"quitx", b"quit ", b"quit now"])
def test_quit_closes_without_a_reply(client: Client, line: bytes) -> None:
    client.send(line + b"\r\n" + FENCE)
    assert client.read_to_end() == b""


@pytest.mark.parametrize("line", [b"\0", b"stats\0", b"nosuch\0", b"\0quit", b"quit\0"])
def test_a_nul_is_looked_at_before_the_word(client: Client, line: bytes) -> None:
    assert answers(client, line, BAD)


@pytest.mark.parametrize("word", [b"x", b"stats", b"\0", b"quit"])
def test_a_line_of_222_characters_is_still_a_command(client: Client, word: bytes) -> None:
    if word == b"quit":
        client.send(word.ljust(MAX_LINE, b"x") + b"\r\n")
        assert client.read_to_end() == b""
    else:
        reply = UNKNOWN if word == b"x" else BAD
        assert answers(client, word.ljust(MAX_LINE, b"x"), reply)


@pytest.mark.parametrize("length", LONG_LENGTHS)
@pytest.mark.parametrize("word", [b"nosuch", b"quit", b"use a\0", b"put 0 0 1 1 "])
def test_a_longer_line_is_thrown_away_whole(client: Client, word: bytes, length: int) -> None:
    assert answers(client, word.ljust(length, b"x"), BAD)


@pytest.mark.parametrize("length", [223, 447, 671])
def test_also_where_c_beanstalkd_would_take_the_next_command_along(
    client: Client, length: int
) -> None:
    """It misses a CR LF that lies across the end of one of its blocks of 224 bytes."""
    assert answers(client, b"x" * length, BAD)


def test_a_long_line_is_answered_when_it_ends(client: Client) -> None:
    client.send(b"x" * 500)
    assert client.silent()
    client.send(b"\n" + b"x" * 100)
    assert client.silent()
    assert answers(client, b"x", BAD)


def test_a_line_feed_alone_does_not_end_a_line(client: Client, tube: bytes) -> None:
    client.send(b"list-tube-used\n")
    assert client.silent()
    assert client.ask(b"\r\n") == BAD
    assert client.ask(b"list-tube-used\r\n") == b"USING %b\r\n" % tube


def test_a_carriage_return_alone_does_not_end_a_line(client: Client) -> None:
    """C beanstalkd searches for the first CR only, and waits for ever."""
    assert answers(client, b"nosuch\rx", UNKNOWN)
    assert answers(client, b"use a\rb", BAD)
    assert answers(client, b"nosuch\r", UNKNOWN)


@pytest.mark.costly
def test_a_line_cut_off_by_the_end_of_input_is_no_command(
    connect: Connect, client: Client, tube: bytes
) -> None:
    job = client.put()
    other = connect()
    other.send(b"delete %d" % job)
    other.half_close()
    assert other.read_to_end() == b""
    assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND")
