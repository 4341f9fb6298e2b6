"""Commands that beanstalkd lacks: what they answer, and how a client finds out."""

from __future__ import annotations

import pytest
from listing import all_jobs, page_of
from servers import reference
from wire import FENCE, FENCE_REPLY, Client, Connect, in_tube, list_of

BAD = b"BAD_FORMAT\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
FEATURES = [
    *(b"list-jobs", b"truncate", b"wait"),
    *(b"reserve-abort", b"reserve-batch", b"with", b"move"),
]
COMMANDS = [b"features", b"list-jobs default any 0 10", b"truncate default", b"wait 0 1"]
RESERVES = [b"reserve-abort", b"reserve-batch 1 0", b"reserve-batch 0 0"]


def ids(client: Client, tube: bytes, state: bytes = b"any", limit: int = 1000) -> list[int]:
    return [int(row["id"]) for row in all_jobs(client, tube, state, limit)]


def test_features_names_the_extensions(client: Client) -> None:
    assert list_of(client.ask(b"features\r\n")) == FEATURES


@pytest.mark.parametrize("line", COMMANDS)
def test_beanstalkd_knows_none_of_them(line: bytes) -> None:
    with reference() as server, server.connect() as client:
        assert client.ask(line + b"\r\n") == UNKNOWN
        assert client.ask(FENCE) == FENCE_REPLY


@pytest.mark.parametrize("line", RESERVES)
def test_beanstalkd_refuses_words_that_start_with_reserve(line: bytes) -> None:
    with reference() as server, server.connect() as client:
        assert client.ask(line + b"\r\n") == BAD
        assert client.ask(FENCE) == FENCE_REPLY


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"feature", UNKNOWN),
        (b"Features", UNKNOWN),
        (b"features ", BAD),
        (b"featuresx", BAD),
        (b"features\0", BAD),
        (b"list-jobs", UNKNOWN),
        (b"list-jobsx", UNKNOWN),
        (b"list-jobs ", BAD),
        (b"list-jobs t", BAD),
        (b"list-jobs t any", BAD),
        (b"list-jobs t any 0", BAD),
        (b"list-jobs t any 0 ", BAD),
        (b"list-jobs t any 0 0", BAD),
        (b"list-jobs t any 0 1 ", BAD),
        (b"list-jobs t any 0 1x", BAD),
        (b"list-jobs t any x 1", BAD),
        (b"list-jobs t any -1 1", BAD),
        (b"list-jobs t any 18446744073709551616 1", BAD),
        (b"list-jobs t any 0 4294967296", BAD),
        (b"list-jobs t all 0 1", BAD),
        (b"list-jobs t Ready 0 1", BAD),
        (b"list-jobs t readyx 0 1", BAD),
        (b"list-jobs t ready0 1", BAD),
        (b"list-jobs t invalid 0 1", BAD),
        (b"list-jobs -t any 0 1", BAD),
        (b"list-jobs t!any 0 1", BAD),
        (b"list-jobs any 0 1", BAD),
        (b"list-jobs  t any 0 1", BAD),
        (b"list-jobs %b any 0 1" % (b"x" * 201), BAD),
        (b"wait", UNKNOWN),
        (b"waitx", UNKNOWN),
        (b"wait ", BAD),
        (b"wait 1", BAD),
        (b"wait 1 ", BAD),
        (b"wait 1 x", BAD),
        (b"wait x 1", BAD),
        (b"wait -1 1", BAD),
        (b"wait 1 1 ", BAD),
        (b"wait 1 1x", BAD),
        (b"wait 1 1 1", BAD),
        (b"wait 2147483648 1", BAD),
        (b"wait 1 18446744073709551616", BAD),
        (b"reserve-abor", BAD),
        (b"reserve-abort ", BAD),
        (b"reserve-abortx", BAD),
        (b"reserve-abort 1", BAD),
        (b"reserve-abort\0", BAD),
        (b"reserve-batch", BAD),
        (b"reserve-batchx", BAD),
        (b"reserve-batch ", BAD),
        (b"reserve-batch 1", BAD),
        (b"reserve-batch 1 ", BAD),
        (b"reserve-batch 0 0", BAD),
        (b"reserve-batch 1001 0", BAD),
        (b"reserve-batch x 0", BAD),
        (b"reserve-batch -1 0", BAD),
        (b"reserve-batch 1 x", BAD),
        (b"reserve-batch 1 0x", BAD),
        (b"reserve-batch 1 0 ", BAD),
        (b"reserve-batch 1 2147483648", BAD),
        (b"reserve-batch 4294967297 0", BAD),
        (b"truncate", UNKNOWN),
        (b"truncate-tube t", UNKNOWN),
        (b"truncate ", BAD),
        (b"truncate  t", BAD),
        (b"truncate t ", BAD),
        (b"truncate t ready", BAD),
        (b"truncate -t", BAD),
        (b"truncate %b" % (b"x" * 201), BAD),
    ],
)
def test_wrong_lines(client: Client, line: bytes, reply: bytes) -> None:
    client.send(line + b"\r\n" + FENCE)
    assert client.replies(2) == [reply, FENCE_REPLY]


@pytest.mark.parametrize(
    "line",
    [
        b"list-jobs nosuch any 0 1",
        b"list-jobs nosuch  any  0  1",
        b"list-jobs nosuch any 18446744073709551615 4294967295",
        b"list-jobs %b any 0 1" % (b"x" * 200),
    ],
)
def test_a_tube_that_does_not_exist_has_no_jobs(client: Client, line: bytes) -> None:
    assert client.ask(line + b"\r\n") == b"OK 21\r\n---\njobs: []\nnext: 0\n\r\n"
    assert b"nosuch" not in list_of(client.ask(b"list-tubes\r\n"))


def test_a_row_has_what_stats_job_has(connect: Connect, client: Client, tube: bytes) -> None:
    jobs = {
        "ready": client.put(b"abc", pri=7, ttr=50),
        "delayed": client.put(b"", pri=2**32 - 1, delay=1000),
        "buried": client.put(b"x" * 2000),
        "reserved": client.put(pri=5000),
    }
    client.bury(jobs["buried"], 9)
    holder = in_tube(connect(), tube)
    assert holder.ask(b"reserve-job %d\r\n" % jobs["reserved"]).startswith(b"RESERVED")
    listed = all_jobs(client, tube)
    assert [row["id"] for row in listed] == [str(job) for job in jobs.values()]
    for row, size in zip(listed, (3, 0, 2000, 1), strict=True):
        stats = client.job_stats(int(row["id"]))
        assert abs(int(row.pop("time-left")) - int(stats.pop("time-left"))) <= 1
        assert abs(int(row.pop("age")) - int(stats.pop("age"))) <= 1
        assert row.pop("bytes") == str(size)
        del stats["tube"], stats["file"]
        assert row == stats
    for state, job in jobs.items():
        assert ids(client, tube, state.encode()) == [job]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_pages_have_every_job_once_by_id(client: Client, tube: bytes, limit: int) -> None:
    jobs = [client.put(pri=9 - number) for number in range(7)]
    client.ask(b"use %b.other\r\n" % tube)
    client.put()
    assert ids(client, tube, b"any", limit) == jobs
    assert ids(client, tube, b"buried", limit) == []


def test_a_page_starts_after_an_id(client: Client, tube: bytes) -> None:
    jobs = [client.put() for _ in range(3)]
    for after, rest in ((jobs[0] - 1, jobs), (jobs[0], jobs[1:]), (jobs[2], [])):
        page, following = page_of(client.ask(b"list-jobs %b any %d 9\r\n" % (tube, after)))
        assert [int(row["id"]) for row in page] == rest
        assert following == 0


def test_a_page_has_at_most_a_thousand_rows(client: Client, tube: bytes) -> None:
    client.send(b"put 0 0 1 1\r\nx\r\n" * 1001)
    jobs = [int(reply.split()[1]) for reply in client.replies(1001)]
    page, following = page_of(client.ask(b"list-jobs %b any 0 4294967295\r\n" % tube))
    assert [int(row["id"]) for row in page] == jobs[:1000]
    assert following == jobs[999]


def test_replies_keep_the_order_of_commands(connect: Connect, client: Client, tube: bytes) -> None:
    job = client.put()
    other = connect()
    line = b"list-jobs %b any 0 1\r\n" % tube
    other.send(FENCE + line * 2 + b"peek %d\r\n" % job + line + FENCE + b"features\r\n" + line)
    replies = other.replies(8)
    assert [replies[0], replies[5]] == [FENCE_REPLY] * 2
    assert replies[3] == b"FOUND %d 1\r\nx\r\n" % job
    assert list_of(replies[6]) == FEATURES
    for reply in (replies[1], replies[2], replies[4], replies[7]):
        assert [row["id"] for row in page_of(reply)[0]] == [str(job)]


def test_a_closed_sending_side_still_gets_its_pages(client: Client, tube: bytes) -> None:
    client.put()
    client.send(b"list-jobs %b any 0 1\r\n" % tube * 3)
    client.half_close()
    assert client.read_to_end().count(b"next: 0\n\r\n") == 3


@pytest.mark.parametrize("tube_name", [b"nosuch", b"x" * 200])
def test_a_tube_that_does_not_exist_has_nothing_to_truncate(
    client: Client, tube_name: bytes
) -> None:
    assert client.ask(b"truncate %b\r\n" % tube_name) == b"TRUNCATED 0\r\n"
    assert tube_name not in list_of(client.ask(b"list-tubes\r\n"))


def test_a_truncate_deletes_all_jobs_but_reserved_ones(
    connect: Connect, client: Client, tube: bytes
) -> None:
    ready, delayed, buried, held, other = (client.put(delay=delay) for delay in (0, 100, 0, 0, 0))
    client.bury(buried)
    holder = in_tube(connect(), tube)
    for job in (held, other):
        assert holder.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
    client.ask(b"use %b.other\r\n" % tube)
    elsewhere = client.put()
    before = client.stats(b"stats-tube %b" % tube)
    assert connect().ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 3\r\n"
    for job in (ready, delayed, buried):
        assert client.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n"
    assert ids(client, tube) == [held, other]
    after = client.stats(b"stats-tube %b" % tube)
    counts = [f"current-jobs-{state}" for state in ("urgent", "ready", "delayed", "buried")]
    assert after == {**before, **dict.fromkeys(counts, "0")}
    assert holder.ask(b"release %d 0 0\r\n" % held) == b"RELEASED\r\n"
    assert holder.ask(b"bury %d 0\r\n" % other) == b"BURIED\r\n"
    assert ids(client, tube) == [held, other]
    assert client.ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 2\r\n"
    assert client.ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 0\r\n"
    assert client.ask(b"peek %d\r\n" % elsewhere).startswith(b"FOUND")


def test_a_truncated_tube_exists_as_long_as_one_without_jobs(
    connect: Connect, client: Client, tube: bytes
) -> None:
    client.ask(b"use %b.short\r\n" % tube)
    client.put()
    other = connect()
    assert other.ask(b"truncate %b.short\r\n" % tube) == b"TRUNCATED 1\r\n"
    assert tube + b".short" in list_of(client.ask(b"list-tubes\r\n"))
    client.put()
    client.ask(b"use %b\r\n" % tube)
    assert other.ask(b"truncate %b.short\r\n" % tube) == b"TRUNCATED 1\r\n"
    assert tube + b".short" not in list_of(client.ask(b"list-tubes\r\n"))


def test_a_client_that_waits_gets_what_comes_after_a_truncate(
    connect: Connect, client: Client, tube: bytes
) -> None:
    client.put(delay=1)
    waiter = in_tube(connect(), tube)
    waiter.send(b"reserve-with-timeout 3\r\n")
    assert client.ask(b"truncate %b\r\n" % tube) == b"TRUNCATED 1\r\n"
    assert waiter.silent(1.2)
    job = client.put()
    assert waiter.reply() == b"RESERVED %d 1\r\nx\r\n" % job


def test_a_truncate_keeps_its_place_among_other_commands(client: Client, tube: bytes) -> None:
    put = b"put 0 0 9 1\r\nx\r\n"
    truncate = b"truncate %b\r\n" % tube
    client.send(put * 2 + truncate + put + b"peek-ready\r\n" + truncate)
    replies = client.replies(6)
    assert replies[2] == b"TRUNCATED 2\r\n"
    assert replies[4] == b"FOUND %d 1\r\nx\r\n" % int(replies[3].split()[1])
    assert replies[5] == b"TRUNCATED 1\r\n"


def test_extensions_add_nothing_to_stats(client: Client, tube: bytes) -> None:
    before = client.stats()
    client.ask(b"features\r\n")
    client.ask(b"list-jobs %b any 0 1\r\n" % tube)
    client.ask(b"truncate %b\r\n" % tube)
    after = client.stats()
    assert list(after) == list(before)
    counted = {key for key in after if key.startswith("cmd-") and after[key] != before[key]}
    assert counted == {"cmd-stats"}
