"""How bytes arrive makes no difference: one command at a time, all at once, or byte by byte.

A script is a table of commands and replies. `{tube}` is a tube of its own, `{1}` the id of the
first job put by the script, `{2}` that of the second, and so on.
"""

from __future__ import annotations

import re

import pytest
from wire import FENCE, FENCE_REPLY, Client, Connect

Script = list[tuple[str, str]]

LIFE_OF_JOBS: Script = [
    ("use {tube}", "USING {tube}"),
    ("watch {tube}", "WATCHING 2"),
    ("ignore default", "WATCHING 1"),
    ("put 5 0 100 3\r\nabc", "INSERTED {1}"),
    ("put 2000 100 100 0\r\n", "INSERTED {2}"),
    ("put 0 0 100 4\r\n\r\n\r\n", "INSERTED {3}"),
    ("peek-ready", "FOUND {3} 4\r\n\r\n\r\n"),
    ("reserve", "RESERVED {3} 4\r\n\r\n\r\n"),
    ("bury {3} 7", "BURIED"),
    ("peek-buried", "FOUND {3} 4\r\n\r\n\r\n"),
    ("reserve-with-timeout 10", "RESERVED {1} 3\r\nabc"),
    ("reserve-with-timeout 0", "TIMED_OUT"),
    ("touch {1}", "TOUCHED"),
    ("release {1} 8 0", "RELEASED"),
    ("kick 10", "KICKED 1"),
    ("kick-job {2}", "KICKED"),
    ("reserve-job {2}", "RESERVED {2} 0\r\n"),
    ("delete {2}", "DELETED"),
    ("reserve", "RESERVED {3} 4\r\n\r\n\r\n"),
    ("delete {1}", "DELETED"),
    ("delete {3}", "DELETED"),
    ("list-tubes-watched", "OK {size}\r\n---\n- {tube}\n"),
    ("list-tube-used", "USING {tube}"),
    ("pause-tube {tube} 100", "PAUSED"),
    ("pause-tube {tube} 0", "PAUSED"),
]
ERRORS: Script = [
    ("", "UNKNOWN_COMMAND"),
    ("use {tube}", "USING {tube}"),
    ("put 0 0 100 3\r\nab\n", "INSERTED {1}"),
    ("put 0 0 x 3", "BAD_FORMAT"),
    ("peek {1}", "FOUND {1} 3\r\nab\n"),
    ("put 0 0 100 1\r\na__nosuch", "EXPECTED_CRLF\r\nUNKNOWN_COMMAND"),
    ("put 0 0 100 1\r\nb", "INSERTED {3}"),
    ("put 0 0 100 70000\r\n" + "z" * 70000, "JOB_TOO_BIG"),
    ("statsx", "BAD_FORMAT"),
    ("use a\0", "BAD_FORMAT"),
    ("delete {2}", "NOT_FOUND"),
    ("delete {1}", "DELETED"),
    ("ignore default", "NOT_IGNORED"),
    ("stats\n", "BAD_FORMAT"),
    ("kick 4294967297", "KICKED 0"),
    ("delete {3}", "DELETED"),
]
LONG_LINES: Script = [
    ("use {tube}", "USING {tube}"),
    ("x" * 300, "BAD_FORMAT"),
    ("list-tube-used", "USING {tube}"),
    ("put 0 0 100 3\r\nabc", "INSERTED {1}"),
    ("use " + "a" * 220, "BAD_FORMAT"),
    ("x" * 222, "UNKNOWN_COMMAND"),
    ("quit" + "\0" * 500, "BAD_FORMAT"),
    ("delete {1}", "DELETED"),
]
SCRIPTS = {"life of jobs": LIFE_OF_JOBS, "errors": ERRORS, "long lines": LONG_LINES}


class Player:
    """A script with its names filled in, and a connection to play it on."""

    def __init__(self, script: Script, connect: Connect, tube: bytes) -> None:
        self.client = connect()
        self._fence = connect()
        # No other client puts jobs meanwhile, so the next ids are known.
        last = self._fence.put()
        assert self._fence.ask(b"delete %d\r\n" % last) == b"DELETED\r\n"
        names = {"tube": tube.decode(), "size": str(len(tube) + len("---\n- \n"))}
        names |= {str(number): str(last + number) for number in range(1, 10)}

        def fill(text: str) -> bytes:
            return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], text).encode() + b"\r\n"

        self.commands = [fill(command) for command, _ in script]
        self.replies = [fill(reply) for _, reply in script]

    def send_apart(self, piece: bytes) -> None:
        """Send a piece, and wait until the server has read it."""
        self.client.send(piece)
        assert self._fence.ask(FENCE) == FENCE_REPLY

    def expect_all(self) -> None:
        """Check that all replies have arrived, and nothing else."""
        expected = b"".join(self.replies)
        self.client.send(b"quit\r\n")
        assert self.client.read_to_end() == expected


@pytest.fixture(params=SCRIPTS)
def player(request: pytest.FixtureRequest, connect: Connect, tube: bytes) -> Player:
    """Every script, ready to be played."""
    return Player(SCRIPTS[request.param], connect, tube)


def test_one_command_at_a_time(player: Player) -> None:
    for command, reply in zip(player.commands, player.replies, strict=True):
        player.client.send(command)
        received = b""
        while len(received) < len(reply):
            received += player.client.reply()
        assert received == reply
    player.client.send(b"quit\r\n")
    assert player.client.read_to_end() == b""


def test_all_at_once(player: Player) -> None:
    player.client.send(b"".join(player.commands))
    player.expect_all()


def test_byte_by_byte(player: Player) -> None:
    """Large bodies are sent in larger pieces."""
    for command in player.commands:
        size = max(1, len(command) // 600)
        for start in range(0, len(command), size):
            player.send_apart(command[start : start + size])
    player.expect_all()


@pytest.mark.parametrize("size", [2, 3, 7, 50, 223, 224, 225, 4096])
def test_in_pieces(player: Player, size: int) -> None:
    stream = b"".join(player.commands)
    for start in range(0, min(len(stream), 3000), size):
        player.send_apart(stream[start : min(start + size, 3000)])
    player.client.send(stream[3000:])
    player.expect_all()


@pytest.mark.parametrize("name", ["life of jobs", "errors"])
def test_in_two_pieces_wherever_the_cut_is(connect: Connect, tube: bytes, name: str) -> None:
    script = [pair for pair in SCRIPTS[name] if len(pair[0]) < 1000]
    cut = 1
    while True:
        player = Player(script, connect, b"%b.%d" % (tube, cut))
        stream = b"".join(player.commands)
        if cut >= len(stream):
            break
        player.send_apart(stream[:cut])
        player.client.send(stream[cut:])
        player.expect_all()
        cut += 1


def test_a_pipeline_goes_on_after_a_reserve_that_waited(
    connect: Connect, client: Client, tube: bytes
) -> None:
    """And not before: its replies keep their order."""
    waiter = connect()
    waiter.send(b"watch %b\r\nreserve\r\nlist-tube-used\r\nreserve-with-timeout 0\r\n" % tube)
    assert waiter.reply() == b"WATCHING 2\r\n"
    assert waiter.silent()
    job = client.put()
    assert waiter.replies(3) == [
        b"RESERVED %d 1\r\nx\r\n" % job,
        b"USING default\r\n",
        b"TIMED_OUT\r\n",
    ]


@pytest.mark.costly
def test_a_long_pipeline_of_a_client_that_reads_late(client: Client) -> None:
    """Far more replies than all buffers between can hold."""
    size, count = 60_000, 200
    job = client.put(b"y" * size)
    found = b"FOUND %d %d\r\n%b\r\n" % (job, size, b"y" * size)
    client.send(b"peek %d\r\n" % job * count)
    assert not client.silent(0.2)
    assert client.replies(count) == [found] * count
