"""with: options of the next put of the connection."""

from __future__ import annotations

import time

import pytest
from processes import slowness
from servers import reference
from wire import FENCE, FENCE_REPLY, Client, Connect, in_tube, inserted_id

MAX_SIZE = 1000
SERVER_ARGS = ("-z", str(MAX_SIZE))
BAD = b"BAD_FORMAT\r\n"
WITH = b"WITH\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
# A put that is delayed only by its options.
PUT = b"put 0 0 100 1\r\nx\r\n"
DELAYED = b"with delay-ms=90000\r\n"


def state_of_put(client: Client, put: bytes = PUT) -> str:
    return client.job_stats(inserted_id(client.ask(put)))["state"]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"with", UNKNOWN),
        (b"within", UNKNOWN),
        (b"With delay-ms=1", UNKNOWN),
        (b"with ", BAD),
        (b"with  delay-ms=1", BAD),
        (b"with delay-ms=1 ", BAD),
        (b"with delay-ms=1  delay-ms=1", BAD),
        (b"with delay-ms=1 delay-ms=1", BAD),
        (b"with delay-ms", BAD),
        (b"with delay-ms=", BAD),
        (b"with delay-ms= 1", BAD),
        (b"with delay-ms=x", BAD),
        (b"with delay-ms=-1", BAD),
        (b"with delay-ms=+1", BAD),
        (b"with delay-ms=1x", BAD),
        (b"with delay-ms=1.5", BAD),
        (b"with delay-ms=4294967296", BAD),
        (b"with delay-ms=99999999999999999999999", BAD),
        (b"with Delay-ms=1", BAD),
        (b"with delay=1", BAD),
        (b"with x", BAD),
        (b"with unique=", BAD),
        (b"with unique= expires=1", BAD),
        (b"with unique=k unique=k", BAD),
        (b"with unique=k l", BAD),
        (b"with unique=k\t", BAD),
        (b"with unique=k\x7f", BAD),
        (b"with unique=k\x80", BAD),
        (b"with unique=" + b"k" * 129, BAD),
        (b"with window=1", BAD),
        (b"with window=1 expires=1", BAD),
        (b"with unique=k window=0", BAD),
        (b"with unique=k window=1 window=1", BAD),
        (b"with window=4294967296 unique=k", BAD),
        (b"with window=4294967295 unique=k", WITH),
        (b"with unique=!~=", WITH),
        (b"with unique=expires=1", WITH),
        (
            b"with unique=%b window=4294967295 expires=4294967295 delay-ms=4294967295"
            % (b"k" * 128),
            WITH,
        ),
        (b"with expires=0", BAD),
        (b"with expires=", BAD),
        (b"with expires=4294967296", BAD),
        (b"with expires=1 expires=2", BAD),
        (b"with expires=1 delay-ms=1 expires=1", BAD),
        (b"with expires=1delay-ms=1", BAD),
        (b"with expires=1 delay-ms=0", WITH),
        (b"with delay-ms=0 expires=4294967295", WITH),
        (b"with delay-ms=1\0", BAD),
        (b"with\tdelay-ms=1", UNKNOWN),
        (b"with delay-ms=0", WITH),
        (b"with delay-ms=4294967295", WITH),
        (b"with delay-ms=%b1" % (b"0" * 100), WITH),
    ],
)
def test_arguments(client: Client, line: bytes, reply: bytes) -> None:
    client.send(line + b"\r\n" + FENCE)
    assert client.replies(2) == [reply, FENCE_REPLY]


@pytest.mark.costly
def test_beanstalkd_does_not_know_it_and_executes_the_put() -> None:
    with reference() as server, server.connect() as client:
        client.send(DELAYED + PUT)
        assert client.replies(2) == [UNKNOWN, b"INSERTED 1\r\n"]


def test_it_concerns_one_put(client: Client) -> None:
    assert client.ask(DELAYED) == WITH
    assert state_of_put(client) == "delayed"
    assert state_of_put(client) == "ready"


def test_it_concerns_its_connection(connect: Connect, client: Client) -> None:
    assert client.ask(DELAYED) == WITH
    assert state_of_put(connect()) == "ready"
    assert state_of_put(client) == "delayed"


def test_other_commands_do_not_spend_it(client: Client, tube: bytes) -> None:
    others = b"put\r\npeek-ready\r\nuse %b\r\nwith x\r\n%b\r\n" % (tube, b"z" * 300)
    client.send(DELAYED + others)
    assert client.replies(6) == [WITH, UNKNOWN, b"NOT_FOUND\r\n", b"USING %b\r\n" % tube, BAD, BAD]
    assert state_of_put(client) == "delayed"


def test_the_last_one_counts(client: Client) -> None:
    client.send(DELAYED + b"with delay-ms=0\r\n")
    assert client.replies(2) == [WITH, WITH]
    assert state_of_put(client) == "ready"


@pytest.mark.parametrize(
    ("put", "reply"),
    [
        (b"put \r\n", BAD),
        (b"put x\r\n", BAD),
        (b"put 0 0 1 1 x\r\n", BAD),
        (b"put 0 0 1 1\0\r\n", BAD),
        (b"put " + b"0" * 300 + b"\r\n", BAD),
        (b"put 0 0 1 %d\r\n%b\r\n" % (MAX_SIZE + 1, b"x" * (MAX_SIZE + 1)), b"JOB_TOO_BIG\r\n"),
        (b"put 0 0 1 1\r\nxyz", b"EXPECTED_CRLF\r\n"),
    ],
)
def test_a_refused_put_spends_it(client: Client, put: bytes, reply: bytes) -> None:
    client.send(DELAYED + put)
    assert client.replies(2) == [WITH, reply]
    assert state_of_put(client) == "ready"


def test_pipelines_of_puts_with_options(client: Client) -> None:
    count = 300
    client.send((DELAYED + PUT + PUT) * count)
    replies = client.replies(3 * count)
    assert replies[::3] == [WITH] * count
    for later, now in zip(replies[1::3][:20], replies[2::3][:20], strict=True):
        assert client.job_stats(inserted_id(later))["state"] == "delayed"
        assert client.job_stats(inserted_id(now))["state"] == "ready"


def test_many_options_without_a_put(client: Client) -> None:
    client.send(PUT + DELAYED * 1000 + FENCE)
    inserted_id(client.reply())
    assert client.replies(1001) == [WITH] * 1000 + [FENCE_REPLY]


def test_a_connection_that_moves_keeps_it(client: Client) -> None:
    """After many replies of another worker it moves there, between any two commands."""
    for _ in range(50):
        client.send(DELAYED)
        assert client.ask(PUT) == WITH
        assert client.job_stats(inserted_id(client.reply()))["state"] == "delayed"


@pytest.mark.parametrize("cut", range(1, len(DELAYED + PUT), 7))
def test_in_pieces(client: Client, cut: int) -> None:
    data = DELAYED + PUT
    client.send(data[:cut])
    time.sleep(0.001)
    client.send(data[cut:])
    assert client.reply() == WITH
    assert client.job_stats(inserted_id(client.reply()))["state"] == "delayed"


def test_a_job_expires(client: Client) -> None:
    client.send(b"with expires=1\r\n" + PUT)
    assert client.reply() == WITH
    job = inserted_id(client.reply())
    assert client.ask(b"wait 5 %d\r\n" % job) == b"DELETED %d\r\n" % job


def test_the_delay_is_exact(client: Client) -> None:
    begin = time.monotonic()
    client.send(b"with delay-ms=300\r\n" + PUT + b"reserve-with-timeout 5\r\n")
    assert client.reply() == WITH
    job = inserted_id(client.reply())
    assert client.reply().startswith(b"RESERVED %d " % job)
    took_s = time.monotonic() - begin
    assert 0.29 < took_s < 0.9 * slowness()
    assert client.job_stats(job)["delay"] == "1"


def test_it_replaces_the_delay_of_the_put(client: Client) -> None:
    client.send(b"with delay-ms=0\r\n")
    assert client.ask(b"put 0 100 100 1\r\nx\r\n") == WITH
    stats = client.job_stats(inserted_id(client.reply()))
    assert (stats["state"], stats["delay"]) == ("ready", "0")


# --- unique keys ----------------------------------------------------------------------------------

UNIQUE = b"with unique=k\r\n"


def put_unique(client: Client, key: bytes = b"k", put: bytes = PUT) -> int:
    client.send(b"with unique=%b\r\n%b" % (key, put))
    assert client.reply() == WITH
    return inserted_id(client.reply())


def test_a_key_has_one_job(client: Client) -> None:
    job = put_unique(client)
    assert put_unique(client) == job
    assert put_unique(client, put=b"put 9 9 9 3\r\nabc\r\n") == job
    assert put_unique(client, b"l") != job
    assert client.put() != job
    assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 1\r\nx\r\n" % job
    assert client.job_stats(job)["pri"] == "0"


def test_a_key_belongs_to_its_tube(client: Client, tube: bytes) -> None:
    job = put_unique(client)
    other = tube + b".other"
    assert client.ask(b"use %b\r\n" % other) == b"USING %b\r\n" % other
    second = put_unique(client)
    assert second != job
    assert put_unique(client) == second
    assert client.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube
    assert put_unique(client) == job


def test_every_state_holds_it_until_the_delete(client: Client) -> None:
    job = put_unique(client, put=b"put 0 1000 100 1\r\nx\r\n")
    assert put_unique(client) == job
    assert client.ask(b"kick-job %d\r\n" % job) == b"KICKED\r\n"
    assert put_unique(client) == job
    assert client.reserve() == job
    assert put_unique(client) == job
    assert client.ask(b"bury %d 0\r\n" % job) == b"BURIED\r\n"
    assert put_unique(client) == job
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert put_unique(client) > job


def test_truncate_frees_it(client: Client, tube: bytes) -> None:
    job = put_unique(client)
    assert client.ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 1\r\n"
    assert put_unique(client) > job


def test_expiry_frees_it(client: Client) -> None:
    job = put_unique(client, b"k expires=1")
    assert client.ask(b"wait 5 %d\r\n" % job) == b"DELETED %d\r\n" % job
    assert put_unique(client) > job


def test_duplicates_count_as_no_job(client: Client, tube: bytes) -> None:
    for _ in range(3):
        put_unique(client)
    stats = client.stats(b"stats-tube " + tube)
    assert (stats["total-jobs"], stats["current-jobs-ready"]) == ("1", "1")


def test_a_refused_put_takes_no_key(client: Client) -> None:
    client.send(UNIQUE + b"put 0 0 1 1\r\nxyz")
    assert client.replies(2) == [WITH, b"EXPECTED_CRLF\r\n"]
    assert client.job_stats(put_unique(client))["state"] == "ready"


def test_of_two_bodies_that_arrive_at_once_one_is_inserted(
    connect: Connect, client: Client, tube: bytes
) -> None:
    other = in_tube(connect(), tube)
    for one in (client, other):
        one.send(UNIQUE + b"put 0 0 100 1\r\n")
        assert one.reply() == WITH
    other.send(b"y\r\n")
    job = inserted_id(other.reply())
    client.send(b"x\r\n")
    assert inserted_id(client.reply()) == job


def test_a_pipeline_of_duplicates(client: Client) -> None:
    count = 400
    client.send((UNIQUE + PUT) * count)
    replies = client.replies(2 * count)
    assert replies[::2] == [WITH] * count
    assert len(set(replies[1::2])) == 1


def test_a_window_keeps_the_key_of_an_ended_job(client: Client) -> None:
    job = put_unique(client, b"k window=2")
    assert client.reserve() == job
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    begin = time.monotonic()
    assert put_unique(client) == job
    assert client.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n"
    while (later := put_unique(client)) == job:
        assert time.monotonic() - begin < 5
        time.sleep(0.05)
    assert time.monotonic() - begin > 1
    assert client.ask(b"delete %d\r\n" % later) == b"DELETED\r\n"
    assert put_unique(client) > later
