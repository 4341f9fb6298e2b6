"""put: the size, the body, the order of refusals, and the id of a job."""

from __future__ import annotations

import pytest
from wire import FENCE, FENCE_REPLY, Client, Connect, inserted_id

MAX_SIZE = 1000
SERVER_ARGS = ("-z", str(MAX_SIZE))
BAD = b"BAD_FORMAT\r\n"
TOO_BIG = b"JOB_TOO_BIG\r\n"
EXPECTED_CRLF = b"EXPECTED_CRLF\r\n"


@pytest.mark.parametrize(
    "body", [b"", b"x", b"a\r\nb\r\n", b"\0\xff\r", b"delete 1\r\n", b"y" * MAX_SIZE], ids=len
)
def test_a_body_comes_back_as_it_went_in(client: Client, body: bytes) -> None:
    job = client.put(body)
    assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d %d\r\n%b\r\n" % (job, len(body), body)
    assert client.ask(b"reserve\r\n") == b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)


@pytest.mark.parametrize("size", [MAX_SIZE + 1, MAX_SIZE + 2, 3 * MAX_SIZE, 1_000_000])
@pytest.mark.parametrize("garbage", [b"", b" x"])
def test_too_big_drops_the_body_and_two_more_bytes(
    client: Client, size: int, garbage: bytes
) -> None:
    """Also with garbage after the size, and for any two bytes."""
    client.send(b"put 0 0 1 %d%b\r\n" % (size, garbage))
    client.send(b"x" * size + b"yz" + FENCE)
    assert client.replies(2) == [TOO_BIG, FENCE_REPLY]


def test_too_big_is_answered_after_the_body(client: Client) -> None:
    client.send(b"put 0 0 1 %d\r\n" % (MAX_SIZE + 1) + b"x" * MAX_SIZE)
    assert client.silent()
    assert client.ask(b"x\r\n") == TOO_BIG


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"0",
        b"0 0",
        b"0 0 1",
        b"0 0 1 ",
        b"0 0 1 -1",
        b"0 0 1 x",
        b"x 0 1 3",
        b"-1 0 1 3",
        b"4294967296 0 1 3",
        b"0 4294967296 1 3",
        b"0 0 4294967296 3",
        b"0 0 1 4294967296",
        b"0\t0 1 3",
        b"0 0 1 3 ",
        b"0 0 1 3x",
        b"0 0 1 3\t",
        b"0 0 1 3 4",
    ],
)
def test_after_bad_arguments_the_body_is_read_as_commands(client: Client, arguments: bytes) -> None:
    client.send(b"put %b\r\nabc\r\n" % arguments + FENCE)
    assert client.replies(3) == [BAD, b"UNKNOWN_COMMAND\r\n", FENCE_REPLY]


def test_the_largest_arguments(client: Client) -> None:
    largest = b"4294967295"
    reply = client.ask(b"put  %b   %b %b 0\r\n\r\n" % (largest, largest, largest))
    stats = client.job_stats(inserted_id(reply))
    assert [stats[key] for key in ("pri", "delay", "ttr", "state")] == [
        "4294967295",
        "4294967295",
        "4294967295",
        "delayed",
    ]


def test_a_ttr_of_zero_becomes_one(client: Client) -> None:
    assert client.job_stats(client.put(ttr=0))["ttr"] == "1"


@pytest.mark.parametrize("ending", [b"  ", b"\n\r", b"\r\r", b"\n\n", b"x\n"])
def test_a_body_not_followed_by_crlf_is_gone(client: Client, ending: bytes) -> None:
    client.send(b"put 0 0 100 3\r\nabc" + ending + FENCE)
    assert client.replies(2) == [EXPECTED_CRLF, FENCE_REPLY]
    assert client.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"


def test_only_inserted_jobs_are_counted_but_refused_ones_leave_gaps(
    client: Client, tube: bytes
) -> None:
    """The id is taken after the size check and the check for garbage, before the body."""
    first = client.put()
    assert client.ask(b"put 0 0 1 %d\r\n%b\r\n" % (MAX_SIZE + 1, b"x" * (MAX_SIZE + 1))) == TOO_BIG
    assert client.ask(b"put 0 0 1 1 x\r\n") == BAD
    assert client.put() == first + 1
    assert client.ask(b"put 0 0 1 1\r\nx  ") == EXPECTED_CRLF
    assert client.put() == first + 3
    assert client.stats(b"stats-tube " + tube)["total-jobs"] == "3"


def test_the_id_is_taken_when_the_command_line_is_read(connect: Connect, client: Client) -> None:
    slow = connect()
    last = client.put()
    slow.send(b"put 0 0 100 3\r\n")
    assert slow.silent()
    assert client.put() == last + 2
    assert slow.ask(b"abc\r\n") == b"INSERTED %d\r\n" % (last + 1)


def test_a_put_abandoned_in_its_body_leaves_a_gap_and_no_job(
    connect: Connect, client: Client, tube: bytes
) -> None:
    gone = connect()
    last = client.put()
    assert gone.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube
    gone.send(b"put 0 0 100 3\r\nab")
    assert gone.silent()
    gone.half_close()
    assert gone.read_to_end() == b""
    assert client.put() == last + 2
    assert client.stats(b"stats-tube " + tube)["total-jobs"] == "2"


def test_a_job_goes_to_the_tube_in_use(client: Client, tube: bytes) -> None:
    client.send(
        b"put 0 0 100 1\r\na\r\n" + b"use %b.b\r\nput 0 0 100 1\r\nb\r\n" % tube + b"peek-ready\r\n"
    )
    replies = client.replies(4)
    first, second = inserted_id(replies[0]), inserted_id(replies[2])
    assert client.job_stats(first)["tube"].strip('"') == tube.decode()
    assert client.job_stats(second)["tube"].strip('"') == tube.decode() + ".b"
    assert replies[3] == b"FOUND %d 1\r\nb\r\n" % second


@pytest.mark.parametrize(
    ("line", "producer"),
    [
        (b"put 0 0 100 1\r\nx\r\n", 1),
        (b"put 0 0 100 1\r\nxyz", 1),
        (b"put 0 0 100 1 x\r\n", 0),
        (b"put 0 0 x 1\r\n", 0),
        (b"put 0 0 100 1001\r\n" + b"x" * 1003, 0),
    ],
)
def test_a_client_that_puts_is_a_producer(
    connect: Connect, client: Client, line: bytes, producer: int
) -> None:
    before = int(client.stats()["current-producers"])
    putter = connect()
    for _ in range(2):
        putter.ask(line)
    assert int(client.stats()["current-producers"]) == before + producer


def test_max_job_size_is_in_stats(client: Client) -> None:
    assert client.stats()["max-job-size"] == str(MAX_SIZE)
