"""`beanstalkd-py history` on stores of RocketMQ and of the archiver."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from history.stores import BY_HAND, DATA, files_of, unpacked

from beanstalkd_py.cli.main import main
from beanstalkd_py.history.store import Message, Store, StoreReader

MISTAKE, DAMAGED, OK = 2, 1, 0
FIRST_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
TUBES = ("mails", "a/b.c", "x" + "/" * 120)


@pytest.fixture
def history(capfdbinary):
    """Run a command on a store; return status, stdout, stderr."""

    def run(store: Path | None, *words: str) -> tuple[int, str, str]:
        where = [] if store is None else ["--store", str(store)]
        with pytest.raises(SystemExit) as ended:
            main(["history", *where, *words])
        out, err = capfdbinary.readouterr()
        return ended.value.code, out.decode("utf-8", "replace"), err.decode()

    return run


def rows(done: tuple[int, str, str]) -> list[dict[str, object]]:
    assert (done[0], done[2]) == (OK, "")
    return [json.loads(line) for line in done[1].splitlines()]


def body_of(row: dict[str, object]) -> bytes:
    if "body" in row:
        return str(row["body"]).encode()
    return base64.b64decode(str(row["body_base64"]))


def read_by_rocketmq(name: str) -> list[dict[str, object]]:
    """Return the messages of a store as RocketMQ has read them."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "msg"]


def in_queue(row: dict[str, object]) -> bool:
    return int(str(row["sysFlag"])) & 12 not in (4, 12)


def job(number: int) -> Message:
    """Return a finished job; jobs are a second apart, in three tubes with two queues each."""
    from beanstalkd_py.history.topics import escape

    tube = TUBES[number % 3]
    properties = {"TUBE": tube, "KEYS": str(number), "TAGS": "deleted", "UNIQ_KEY": f"0-{number}"}
    return Message(
        topic=escape(tube),
        queue_id=number // 3 % 2,
        body=b"\xff\x00" if number % 7 == 0 else f"body {number}".encode(),
        properties=properties,
        born_timestamp=FIRST_MS - 500,
        store_timestamp=FIRST_MS + 1000 * number,
    )


COUNT = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "store"
    with Store.open(folder, BY_HAND) as store:
        store.append([job(number) for number in range(COUNT)])
        store.dispatch()
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def numbers(done: tuple[int, str, str]) -> list[int]:
    return [int(row["keys"][0]) for row in rows(done)]


# --- real stores ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["normal", "propcrc"])
def test_messages_match_rocketmq(history, name, tmp_path):
    folder = shutil.copytree(DATA / name, tmp_path / name)
    before, expected = files_of(folder), read_by_rocketmq(name)
    exported = rows(history(folder, "export"))
    for mine, theirs in zip(exported, expected, strict=True):
        assert (mine["offset"], mine["size"]) == (theirs["off"], theirs["size"])
        assert (mine["topic"], mine["queue_id"]) == (theirs["topic"], theirs["queueId"])
        assert (mine["queue_offset"], mine["message_id"]) == (
            theirs["queueOffset"],
            theirs["msgId"],
        )
        assert mine["properties"] == theirs["props"]
        assert (mine["flag"], mine["sys_flag"]) == (theirs["flag"], theirs["sysFlag"])
        assert body_of(mine) == bytes.fromhex(str(theirs["body"]))
    by_offset = {row["offset"]: row for row in exported}
    queued = [row for row in expected if in_queue(row)]
    topics = sorted({str(row["topic"]) for row in queued})
    assert [row["topic"] for row in rows(history(folder, "topics", "--json"))] == topics
    for topic in topics:
        offsets = [row["off"] for row in queued if row["topic"] == topic]
        listed = rows(history(folder, "ls", topic, "--json"))
        assert listed == [by_offset[each] for each in offsets]
    assert rows(history(folder, "tail", "-n", "20", "--json")) == [
        by_offset[row["off"]] for row in queued[-20:]
    ]
    for row in expected[::25]:
        for key in str(row["props"].get("KEYS", "")).split():
            found = [
                each["off"]
                for each in expected
                if each["topic"] == row["topic"]
                and key in str(each["props"].get("KEYS", "")).split()
                and each["sysFlag"] & 12 != 12
            ]
            queried = rows(history(folder, "query", row["topic"], key, "--json"))
            assert [each["offset"] for each in queried] == sorted(found, reverse=True)[:64]
    status, out, err = history(folder, "verify")
    assert (status, out) == (OK, "")
    assert err.startswith(f"beanstalkd-py: clean, messages: {len(expected)},")
    assert files_of(folder) == before


# --- topics, ls, get, query, tail -------------------------------------------------------------


def test_topics_have_tube_names(history, made):
    reported = rows(history(made, "topics", "--json"))
    assert {row["tube"] for row in reported} == {"mails", "a/b.c", None}
    assert sum(row["messages"] for row in reported) == COUNT
    first_row = next(row for row in reported if row["tube"] == "mails")
    assert first_row["oldest_at"] == "2023-11-14T22:13:20.000Z"
    assert first_row["newest_at"] == "2023-11-14T22:14:17.000Z"
    status, out, _ = history(made, "topics")
    assert status == OK
    assert re.search(r"^a/b\.c +a%2Fb%2Ec +2 +20 ", out, re.MULTILINE)
    for place, tube in enumerate(TUBES):
        assert numbers(history(made, "ls", tube, "--json")) == list(range(place, COUNT, 3))
        assert {row["tube"] for row in rows(history(made, "ls", tube, "--json"))} == {tube}


def test_ls_by_time_offset_and_limit(history, made):
    middle = ["--from", "2023-11-14T22:13:30", "--to", "2023-11-14T22:13:39"]
    assert numbers(history(made, "ls", "mails", "--json", *middle)) == [12, 15, 18]
    assert numbers(history(made, "export", *middle)) == list(range(10, 19))
    assert numbers(history(made, "export", "mails", *middle)) == [12, 15, 18]
    # Each queue has ten messages, so the lists start with eight of each.
    assert numbers(history(made, "ls", "mails", "--json", "--offset", "8")) == [48, 51, 54, 57]
    assert numbers(history(made, "ls", "mails", "--json", "--limit", "2")) == [0, 3]
    assert numbers(history(made, "ls", "mails", "--json", "--from", "2h")) == []
    status, out, _ = history(made, "ls", "mails", "--limit", "1")
    heading, line = out.splitlines()
    assert status == OK
    assert heading.split()[0] == "offset"
    assert line.split() == ["0", "2023-11-14T22:13:20.000Z", "0", "0", "0", "deleted", "2", "mails"]


def test_get_shows_all_fields(history, made):
    (row,) = rows(history(made, "get", "13", "--json"))
    assert (row["tube"], row["topic"], row["body"]) == ("a/b.c", "a%2Fb%2Ec", "body 13")
    assert (row["stored_at"], row["born_at"]) == (
        "2023-11-14T22:13:33.000Z",
        "2023-11-14T22:13:19.500Z",
    )
    assert row["properties"]["UNIQ_KEY"] == "0-13"
    _, out, _ = history(made, "get", "13")
    assert re.search(r"^tube +a/b\.c$", out, re.MULTILINE)
    assert re.search(r"^UNIQ_KEY +0-13$", out, re.MULTILINE)
    assert out.endswith("body             7 bytes\nbody 13\n")
    assert "\\xff\\x00" in history(made, "get", "14")[1]
    assert history(made, "get", "13", "--body") == (OK, "body 13", "")
    status, out, err = history(made, "get", "999")
    assert (status, out) == (DAMAGED, "")
    assert err == f"beanstalkd-py: no such job in {made}: '999'\n"
    assert history(made, "get", "\udcff")[2].startswith(f"beanstalkd-py: no such job in {made}: ")


def test_query_is_newest_first_and_ignores_hash_collisions(history, tmp_path):
    keys = ["Aa", "BB", "Aa", "Aa BB", "Aa"]  # "Aa" and "BB" have the same hash
    with Store.open(tmp_path / "store", BY_HAND) as store:
        store.append(
            Message(
                topic="t",
                body=bytes([number]),
                properties={"KEYS": key},
                store_timestamp=FIRST_MS + 1500 * number,
            )
            for number, key in enumerate(keys)
        )

    def places(*words: str) -> list[int]:
        found = rows(history(tmp_path / "store", *words, "--json"))
        return [body_of(row)[0] for row in found]

    assert places("query", "t", "Aa") == [4, 3, 2, 0]
    assert places("get", "BB") == [3, 1]
    assert places("query", "t", "Aa", "--limit", "2") == [4, 3]
    assert places("query", "t", "Aa", "--to", "2023-11-14T22:13:24.5") == [2, 0]
    assert places("query", "t", "Aa", "--from", "2023-11-14T22:13:23.001") == [4, 3]
    status, out, err = history(tmp_path / "store", "get", "BB", "--body")
    assert (status, out) == (OK, "\x03")
    assert err == "beanstalkd-py: newest of 2 messages of job BB\n"


def test_tail_includes_undispatched_messages(history, copy):
    assert numbers(history(copy, "tail", "--json")) == list(range(COUNT - 10, COUNT))
    assert numbers(history(copy, "tail", "-n", "2", "--json", "a/b.c")) == [COUNT - 5, COUNT - 2]
    store = Store.open(copy, BY_HAND)
    store.append([job(COUNT), job(COUNT + 1)])
    assert numbers(history(copy, "tail", "-n", "3", "--json")) == [COUNT - 1, COUNT, COUNT + 1]
    assert numbers(history(copy, "tail", "-n", "2", "--json", "mails")) == [COUNT - 3, COUNT]
    assert numbers(history(copy, "tail", "-n", "0", "--json")) == []
    store.close()


def test_tail_follows_until_the_pipe_closes(copy):
    command = [sys.executable, "-m", "beanstalkd_py", "history", "tail", "-f", "-n1", "--json"]
    environment = {**os.environ, "BEANSTALKD_HISTORY": str(copy)}
    with (
        Store.open(copy, BY_HAND) as store,
        subprocess.Popen([*command, "mails"], stdout=subprocess.PIPE, env=environment) as following,
    ):
        assert following.stdout is not None
        try:
            assert json.loads(following.stdout.readline())["keys"] == [str(COUNT - 3)]
            store.append([job(number) for number in range(COUNT, COUNT + 6)])
            for number in (COUNT, COUNT + 3):
                assert json.loads(following.stdout.readline())["keys"] == [str(number)]
            following.stdout.close()
            store.append([job(COUNT + 6)])
            assert following.wait(timeout=20) == 141
        finally:
            following.kill()


def test_control_characters_are_escaped(history, tmp_path):
    wild = {"KEYS": "a\nb", "TAGS": "\x1b]0;x", "k\n": "v\r\n", "TUBE": "t\x1b[31m"}
    with Store.open(tmp_path / "store", BY_HAND) as store:
        store.append([Message(topic="t|x", body=b"\x1b[2J", properties=wild)])
        store.append([Message(topic="t|x", born_timestamp=2**62, properties={"KEYS": "far"})])
    for words in (["topics"], ["ls", "t|x"], ["get", "a\nb"], ["get", "far"], ["tail"]):
        status, out, err = history(tmp_path / "store", *words)
        assert (status, err) == (OK, "")
        assert all(char.isprintable() or char == "\n" for char in out)
        expected = {"ls": 3, "tail": 3, "topics": 2}.get(words[0])
        assert expected in (None, out.count("\n"))
    (row,) = rows(history(tmp_path / "store", "get", "a\nb", "--json"))
    assert row["properties"] == wild
    (row,) = rows(history(tmp_path / "store", "get", "far", "--json"))
    assert row["born_at"] is None


# --- damage and usage errors ------------------------------------------------------------------


def spoil(folder: Path, number: int) -> str:
    """Corrupt a byte of this message's body; return `file:offset` of the message."""
    for path in sorted((folder / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        at = data.find(f"body {number}".encode())
        if at >= 0:
            data[at] ^= 1
            path.write_bytes(data)
            return f"{path}:{at - 88}"
    raise AssertionError


def test_damaged_message_is_reported_and_skipped(history, copy):
    place = spoil(copy, 30)
    others = [number for number in range(COUNT) if number != 30]
    status, out, err = history(copy, "export")
    assert [int(json.loads(line)["keys"][0]) for line in out.splitlines()] == others
    assert status == DAMAGED
    assert err == f"beanstalkd-py: {place}: the body does not have its checksum\n"
    status, out, err = history(copy, "ls", "mails", "--json")
    assert [int(json.loads(line)["keys"][0]) for line in out.splitlines()] == [
        number for number in range(0, COUNT, 3) if number != 30
    ]
    assert status == DAMAGED
    assert re.fullmatch(
        r"beanstalkd-py: \S+/mails/0/\d{20}:\d+: leads to \d+, where no sound message is\n", err
    )
    lost = f"beanstalkd-py: {place}: no sound message is here, and it may be one with this key\n"
    assert history(copy, "query", "mails", "30", "--json") == (DAMAGED, "", lost)
    status, out, err = history(copy, "get", "30")
    assert (status, out) == (DAMAGED, "")
    assert err == f"{lost}beanstalkd-py: no such job in {copy}: '30'\n"
    status, out, err = history(copy, "verify")
    assert status == DAMAGED
    assert f"{place}: the body does not have its checksum" in out.splitlines()
    assert all(re.match(r"\S+:\d+: ", line) for line in out.splitlines())
    assert err.startswith(f"beanstalkd-py: damaged; faults: {len(out.splitlines())}, ")
    status, out, _ = history(copy, "verify", "--json")
    report = json.loads(out)
    assert (status, report["clean"]) == (DAMAGED, False)
    assert {"file", "offset", "what"} == set(report["faults"][0])


def test_damaged_last_message_of_a_closed_store_is_reported(history, copy):
    place = spoil(copy, COUNT - 1)
    reported = f"beanstalkd-py: {place}: the body does not have its checksum\n"
    for words in (["export"], ["ls", "mails"], ["tail"], ["topics"]):
        status, _, err = history(copy, *words)
        assert (status, err) == (DAMAGED, reported)
    assert history(copy, "verify")[0] == DAMAGED
    (copy / "abort").write_text("1")  # another process may have it open and write to it
    assert numbers(history(copy, "export")) == list(range(COUNT - 1))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["ls", "nope"], ": 'nope'; 'topics' lists all"),
        (["query", "nope", "1"], "'nope'; 'topics' lists all"),
        (["export", ""], ": ''; 'topics' lists all"),
        (["get", "1", "--body", "--json"], "--body and --json exclude each other"),
        (["ls", "mails", "--from", "soon"], "option --from: invalid time 'soon'"),
        (["ls", "mails", "--limit", "0"], "option --limit: 0 is too small"),
        (["expire"], "missing option --before"),
    ],
)
def test_usage_error_is_one_line(history, made, words, what):
    status, out, err = history(made, *words)
    assert (status, out) == (MISTAKE, "")
    assert what in err
    assert err.count("\n") == 1


def test_folder_without_store_is_one_line(history, tmp_path, monkeypatch):
    for words in (["topics"], ["verify"], ["expire", "--before", "1d"]):
        for folder in (tmp_path, tmp_path / "none"):
            status, out, err = history(folder, *words)
            assert (status, out) == (MISTAKE, "")
            assert err == (
                f"beanstalkd-py: {folder} is no history store: it has no folder commitlog\n"
            )
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("BEANSTALKD_HISTORY", raising=False)
    status, out, err = history(None, "topics")
    assert (status, out) == (MISTAKE, "")
    assert "missing store; use --store DIR" in err


def test_sizes_given_by_options(history, copy):
    (copy / "store.json").unlink()
    sizes = ["--index-slots", "8", "--index-entries", "32"]
    assert rows(history(copy, *sizes, "get", "13", "--json"))[0]["body"] == "body 13"
    status, _, err = history(copy, "--index-slots", "9", "--index-entries", "32", "topics")
    assert status == MISTAKE
    assert "omit --index-slots and --index-entries" in err
    for index in (copy / "index").iterdir():
        os.truncate(index, 2001)
    status, _, err = history(copy, "expire", "--before", "11d")
    assert status == MISTAKE
    assert "2001 bytes fit no number of slots and entries" in err
    assert "--index-slots" in err
    assert history(copy, "topics")[0] == OK  # reading needs no index


# --- all tubes, and unknown properties --------------------------------------------------------


def test_messages_of_all_tubes_are_listed(history, copy):
    assert numbers(history(copy, "ls", "--json")) == list(range(COUNT))
    few = history(copy, "ls", "--filter", "key=7", "--limit", "3", "--json")
    assert numbers(few) == [7]
    status, _, err = history(copy, "ls", "--offset", "3")
    assert (status, "requires TUBE" in err) == (MISTAKE, True)


def test_ls_omits_messages_without_queue(history, tmp_path):
    folder = shutil.copytree(DATA / "normal", tmp_path / "normal")
    listed = [row["offset"] for row in rows(history(folder, "ls", "--json"))]
    assert listed == [row["off"] for row in read_by_rocketmq("normal") if in_queue(row)]


@pytest.mark.parametrize("command", ["ls", "export"])
@pytest.mark.parametrize("tube", [(), ("mails",)])
def test_a_filter_on_a_property_that_no_message_has_warns(history, copy, command, tube):
    for condition in ("timeout>0", "properties.timeout!=0"):
        status, _, err = history(copy, command, *tube, "--filter", condition)
        assert status == OK
        assert err.count("\n") == 1 and "no message has the property 'timeout'" in err
    for condition in ("tag=deleted", "TUBE=mails", "key=1", "size>0", "body~o"):
        assert history(copy, command, *tube, "--filter", condition)[2] == ""


# --- missing and unreadable files -------------------------------------------------------------


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("lost", ["index", "last log file", "log"])
def test_verify_of_a_store_that_lacks_files_is_not_clean(history, copy, lost, was_killed):
    from beanstalkd_py.archiver.archived_position import ArchivedPositions

    with StoreReader.open(copy) as store:
        ArchivedPositions(log_end=store.log.end).save(copy)
    if was_killed:
        (copy / "abort").touch()
    assert history(copy, "verify")[0] == OK
    log = sorted((copy / "commitlog").iterdir())
    gone = {"index": list((copy / "index").iterdir()), "last log file": log[-1:], "log": log}[lost]
    for path in gone:
        path.unlink()
    if lost != "index":
        (copy / "dispatched").unlink()  # `archived` alone suffices
    status, out, err = history(copy, "verify")
    assert status == DAMAGED
    assert ("not in the index" if lost == "index" else "recorded as having been on disk") in out
    assert "damaged; faults: " in err


def test_verify_reports_a_damaged_record_of_positions(history, copy):
    (copy / "archived").write_bytes(b"no such thing")
    status, out, _ = history(copy, "verify")
    assert status == DAMAGED
    assert out.startswith(f"{copy}/archived:0: cannot be understood")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("batch-queues", "batch consume queues"), ("rocksdb-queues", "they are in RocksDB")],
)
def test_unreadable_queues_are_reported(history, tmp_path, kind, words):
    folder = unpacked(kind, tmp_path)
    for command in (("ls", "special"), ("query", "special", "k1"), ("export", "special")):
        status, out, err = history(folder, *command)
        assert (status, out, err.count("\n")) == (MISTAKE, "", 1)
        assert words in err and str(folder) in err
    for command in (("topics",), ("tail",)):
        status, _, err = history(folder, *command)
        assert status == DAMAGED and words in err
    assert [row["keys"] for row in rows(history(folder, "get", "k1", "--json"))] == [["k1"]]
    assert history(folder, "get", "k100")[0] == DAMAGED
    assert len(rows(history(folder, "export"))) == 40
    status, _, err = history(folder, "verify")
    assert status == OK and "not compared" in err and words in err
    status, _, err = history(folder, "expire", "--before", "1d")
    assert status == MISTAKE and "for writing" in err and err.count("\n") == 1


def test_a_key_is_found_without_an_index(history, tmp_path):
    folder = unpacked("no-index", tmp_path)
    assert [row["keys"] for row in rows(history(folder, "query", "special", "k1", "--json"))] == [
        ["k1"]
    ]
    assert rows(history(folder, "query", "plain", "k1", "--json")) == []


def test_index_file_of_wrong_length_is_reported(history, copy):
    path = sorted((copy / "index").iterdir())[0]
    os.truncate(path, 100)
    assert numbers(history(copy, "ls", "mails", "--json"))[0] == 0
    for command in (("get", "3"), ("query", "mails", "3")):
        status, out, err = history(copy, *command, "--json")
        assert status == DAMAGED
        assert [json.loads(line)["keys"] for line in out.splitlines()] == [["3"]]
        assert f"{path}: 100 bytes, not " in err
    status, out, _ = history(copy, "verify")
    assert status == DAMAGED and f"{path}:0: 100 bytes, not " in out


@pytest.mark.costly
def test_verify_stops_after_1000_faults(history, tmp_path):
    folder = tmp_path / "store"
    with Store.open(folder, BY_HAND) as store:
        store.append([job(number) for number in range(1100)])
    for path in folder.glob("consumequeue/*/*/*"):
        data = bytearray(path.read_bytes())
        data[12::20] = bytes(len(data[12::20])).replace(b"\0", b"\7")
        path.write_bytes(data)
    status, out, err = history(folder, "verify")
    assert (status, out.count("\n")) == (DAMAGED, 1000)
    assert "faults: 1000 (stopped; there may be more)" in err
    assert json.loads(history(folder, "verify", "--json")[1])["stopped"] is True


# --- expiry -----------------------------------------------------------------------------------


def test_expire_removes_old_files(history, copy):
    log = sorted((copy / "commitlog").iterdir())
    assert len(log) > 3
    old = time.time() - 10 * 86400
    for path in log[:2]:
        os.utime(path, (old, old))
    status, out, err = history(copy, "expire", "--before", "11d")
    assert (status, err) == (OK, "")
    assert out.startswith("removed 0 log files, ")
    assert history(copy, "expire", "--before", "9d", "--json")[0] == OK
    assert sorted((copy / "commitlog").iterdir()) == log[2:]
    left = numbers(history(copy, "export"))
    assert left == list(range(left[0], COUNT))
    assert left[0] > 0
    assert numbers(history(copy, "ls", "mails", "--json")) == [
        number for number in left if number % 3 == 0
    ]
    assert history(copy, "verify")[0] == OK


def test_expire_rejects_an_open_store(history, copy):
    with Store.open(copy, BY_HAND):
        status, out, err = history(copy, "expire", "--before", "1d")
    assert (status, out) == (MISTAKE, "")
    assert err == f"beanstalkd-py: {copy} is in use: it is open elsewhere\n"
