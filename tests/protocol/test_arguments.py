"""How numbers and tube names are read, and that a command counts once its arguments parsed."""

from __future__ import annotations

import pytest
from wire import FENCE, FENCE_REPLY, Client

BAD = b"BAD_FORMAT\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
NO_JOB = b"18446744073709551615"  # the largest id there can be
U32_MAX = b"4294967295"
LONG_NAME = b"a" * 200

# {} is a job that does not exist.
GOOD_NUMBERS = [
    "delete {}",
    "delete    {}",
    "delete 0",
    "delete 000000000000000000000000000000000000000000",
    "release {} 4294967295 4294967295",
    "release  {}  00  0",
    "bury {} 4294967295",
    "bury  {}  0",
    "touch {}",
    "kick-job {}",
    "reserve-job {}",
    "peek {}",
    "stats-job {}",
]
BAD_NUMBERS = [
    "delete ",
    "delete x",
    "delete {} ",
    "delete {}x",
    "delete +1",
    "delete -1",
    "delete 0x1",
    "delete 1.0",
    "delete \t1",
    "delete 18446744073709551616",
    "delete 99999999999999999999999999",
    "release {}",
    "release {} 0",
    "release {} 4294967296 0",
    "release {} 0 4294967296",
    "release {} 0 0 ",
    "release {} 0 0 0",
    "release {}\t0 0",
    "release {}x0 0",
    "release {} -1 0",
    "bury {}",
    "bury {} 4294967296",
    "bury {} 0 ",
    "touch {} ",
    "touch 18446744073709551616",
    "kick-job {} ",
    "kick-job ",
    "reserve-job {} ",
    "reserve-job x",
    "peek {} ",
    "peek x",
    "stats-job {} ",
    "stats-job x",
    "kick ",
    "kick x",
    "kick -",
    "kick 99999999999999999999999",
    "pause-tube {tube}",
    "pause-tube {tube} ",
    "pause-tube {tube} x",
    "pause-tube {tube} 0 ",
    "pause-tube {tube} 0 0",
    "pause-tube {tube} 4294967296",
    "pause-tube",
    "pause-tube ",
    "reserve-with-timeout ",
    "reserve-with-timeout x",
    "reserve-with-timeout -1",
    "reserve-with-timeout 2147483648",
    "reserve-with-timeout 4294967296",
]


def ask_in_step(client: Client, line: bytes) -> bytes:
    """One line gets one reply, and the next command is parsed correctly."""
    client.send(line + b"\r\n" + FENCE)
    reply, fence_reply = client.replies(2)
    assert fence_reply == FENCE_REPLY
    return reply


@pytest.mark.parametrize("line", GOOD_NUMBERS)
def test_good_numbers(client: Client, line: str) -> None:
    assert ask_in_step(client, line.format(NO_JOB.decode()).encode()) == NOT_FOUND


@pytest.mark.parametrize("line", BAD_NUMBERS)
def test_bad_numbers(client: Client, tube: bytes, line: str) -> None:
    filled = line.format(NO_JOB.decode(), tube=tube.decode())
    assert ask_in_step(client, filled.encode()) == BAD


@pytest.mark.parametrize("number", [b"0", b" 0", b"0 garbage", b"0x", b"000"])
def test_text_after_a_reserve_timeout_is_ignored(client: Client, number: bytes) -> None:
    assert ask_in_step(client, b"reserve-with-timeout " + number) == TIMED_OUT


def test_the_longest_reserve_timeout(client: Client) -> None:
    client.send(b"reserve-with-timeout 2147483647\r\n")
    assert client.silent()


@pytest.mark.parametrize(
    ("number", "kicked"),
    [
        (b"2", 2),
        (b" 2", 2),
        (b"\t2", 2),
        (b"\x0b+2x", 2),
        (b"2 2", 2),
        (b"0x10", 0),
        (b"0", 0),
        (b"-1", 3),
        (b"4294967295", 3),
        (b"4294967296", 0),
        (b"4294967298", 2),
        (b"18446744073709551615", 3),
        (b"-4294967294", 2),
    ],
)
def test_kick_takes_what_strtoul_takes_cut_to_32_bits(
    client: Client, number: bytes, kicked: int
) -> None:
    for _ in range(3):
        client.put(delay=100)
    assert ask_in_step(client, b"kick " + number) == b"KICKED %d\r\n" % kicked


@pytest.mark.parametrize(
    "name", [b"a", b"a-", b"0", b"+/;.$_()-azAZ09", b"/", b"$", b"default", LONG_NAME]
)
def test_good_tube_names(client: Client, name: bytes) -> None:
    assert ask_in_step(client, b"use " + name) == b"USING %b\r\n" % name
    assert ask_in_step(client, b"watch " + name) == b"WATCHING 2\r\n"
    assert ask_in_step(client, b"stats-tube " + name).startswith(b"OK ")
    assert ask_in_step(client, b"pause-tube %b 0" % name) == b"PAUSED\r\n"
    assert ask_in_step(client, b"ignore " + name) == b"WATCHING 1\r\n"


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"-a",
        b"a b",
        b" a",
        b"a ",
        b"a:b",
        b"a*",
        b"a,b",
        b"a#",
        b"a\n",
        b"\xc3\xa9",
        b"a\x7f",
        LONG_NAME + b"a",
    ],
)
@pytest.mark.parametrize("command", [b"use %b", b"watch %b", b"ignore %b", b"stats-tube %b"])
def test_bad_tube_names(client: Client, command: bytes, name: bytes) -> None:
    assert ask_in_step(client, command % name) == BAD


@pytest.mark.parametrize("name", [b"-a", b"a:b", b"a*", b"\xc3\xa9", LONG_NAME + b"a"])
def test_bad_names_of_tubes_to_pause(client: Client, name: bytes) -> None:
    assert ask_in_step(client, b"pause-tube %b 0" % name) == BAD


@pytest.mark.parametrize("form", [b"pause-tube%b 0", b"pause-tube %b 0", b"pause-tube   %b   00"])
def test_spaces_before_the_name_of_a_tube_to_pause_are_free(
    client: Client, tube: bytes, form: bytes
) -> None:
    assert ask_in_step(client, form % tube) == b"PAUSED\r\n"


COUNTED = [
    # (line, its counter, whether it counts)
    (b"put 0 0 100 x", "cmd-put", 0),
    (b"put 0 0 100 0 x", "cmd-put", 1),
    (b"put 0 0 100 0\r\n", "cmd-put", 1),
    (b"peek " + NO_JOB, "cmd-peek", 1),
    (b"peek x", "cmd-peek", 0),
    (b"peek-ready", "cmd-peek-ready", 1),
    (b"peek-readyx", "cmd-peek-ready", 0),
    (b"peek-delayed", "cmd-peek-delayed", 1),
    (b"peek-buried", "cmd-peek-buried", 1),
    (b"reserve-with-timeout 0", "cmd-reserve-with-timeout", 1),
    (b"reserve-with-timeout 0", "cmd-reserve", 0),
    (b"reserve-with-timeout 2147483648", "cmd-reserve-with-timeout", 0),
    (b"reservex", "cmd-reserve", 0),
    (b"reserve-job " + NO_JOB, "cmd-reserve", 0),
    (b"delete " + NO_JOB, "cmd-delete", 1),
    (b"delete x", "cmd-delete", 0),
    (b"release %b 0 0" % NO_JOB, "cmd-release", 1),
    (b"release %b 0" % NO_JOB, "cmd-release", 0),
    (b"bury %b 0" % NO_JOB, "cmd-bury", 1),
    (b"bury " + NO_JOB, "cmd-bury", 0),
    (b"touch " + NO_JOB, "cmd-touch", 1),
    (b"touch x", "cmd-touch", 0),
    (b"kick 1", "cmd-kick", 1),
    (b"kick x", "cmd-kick", 0),
    (b"kick-job " + NO_JOB, "cmd-kick", 0),
    (b"use default", "cmd-use", 1),
    (b"use -", "cmd-use", 0),
    (b"watch default", "cmd-watch", 1),
    (b"watch -", "cmd-watch", 0),
    (b"ignore nosuch", "cmd-ignore", 1),
    (b"ignore -", "cmd-ignore", 0),
    (b"stats-job " + NO_JOB, "cmd-stats-job", 1),
    (b"stats-job x", "cmd-stats-job", 0),
    (b"stats-tube nosuch", "cmd-stats-tube", 1),
    (b"stats-tube -", "cmd-stats-tube", 0),
    (b"statsx", "cmd-stats", 0),
    (b"list-tubes", "cmd-list-tubes", 1),
    (b"list-tubesx", "cmd-list-tubes", 0),
    (b"list-tube-used", "cmd-list-tube-used", 1),
    (b"list-tubes-watched", "cmd-list-tubes-watched", 1),
    (b"pause-tube nosuch 0", "cmd-pause-tube", 1),
    (b"pause-tube nosuch x", "cmd-pause-tube", 0),
]


@pytest.mark.parametrize(("line", "counter", "counts"), COUNTED)
def test_a_command_counts_once_its_arguments_parsed(
    client: Client, line: bytes, counter: str, counts: int
) -> None:
    before = client.stats()
    ask_in_step(client, line)
    after = client.stats()
    assert int(after[counter]) - int(before[counter]) == counts + (counter == "cmd-stats")
