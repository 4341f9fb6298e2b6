"""`history replay`: jobs, interruptions, kills and errors."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.operator import Operator
from history.finished import FIRST_MS, finished, make_store, number_of, without_body
from history.stores import BY_HAND
from processes import eventually
from servers import ours
from wire import Client

from beanstalkd_py.admin.import_jobs import BATCH_JOBS
from beanstalkd_py.admin.rate_limiter import RateLimiter
from beanstalkd_py.errors import ToolUsageError
from beanstalkd_py.history.message import Message
from beanstalkd_py.history.store import Store
from beanstalkd_py.replay import state as state_module
from beanstalkd_py.replay.state import BLANK, Replay, ReplayState, StateFile, load

MISTAKE, PART, OK, INTERRUPTED = 2, 1, 0, 130
NO_SERVER = "127.0.0.1:1"
OURS = pytest.mark.parametrize("either", ["ours"], indirect=True)
"""Tests of the store need only one kind of server."""


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "beanstalkd-py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with alternating jobs of two tubes."""
    messages = [finished(number, "mails" if number % 2 else "other") for number in range(800)]
    return make_store(tmp_path_factory.mktemp("replay") / "store", messages)


MESSAGES = [finished(number) for number in range(1, 800, 2)]


def replay(store: Path, *words: str | int) -> list[str | int]:
    return ["history", "--store", str(store), "replay", *words]


def body_of(row: dict[str, str]) -> bytes:
    return row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])


def jobs_in(operator: Operator, tube: str) -> list[tuple[bytes, int, int, int]]:
    """Return bodies, priorities, TTRs, delays, in the order of ids."""
    rows = operator.do("export", tube).json_lines
    return [(body_of(row), row["pri"], row["ttr"], row["delay"]) for row in rows]


def expected(messages: list[Message]) -> list[tuple[bytes, int, int, int]]:
    result = [(each.body, each.properties) for each in messages]
    return [(body, int(has["pri"]), int(has["ttr"]), 0) for body, has in result]


def counted(operator: Operator, tube: str) -> Counter[int]:
    """Return how often each job exists."""
    return Counter(number_of(body) for body, *_ in jobs_in(operator, tube))


# --- jobs -------------------------------------------------------------------------------------


@pytest.mark.costly
def test_replay_puts_jobs_in_order(
    operator: Operator, wire: Client, name: str, store: Path
) -> None:
    done = operator.do(*replay(store, "mails", "--into", name, "--json")).json
    assert (done["put"], done["put_now"], done["finished"]) == (400, 400, True)
    assert done["bytes"] == sum(len(each.body) for each in MESSAGES)
    assert jobs_in(operator, name) == expected(MESSAGES)
    again = operator.do(*replay(store, "mails", "--into", name))
    assert again.lines[0].startswith("already finished at ")
    assert f": put 400 jobs of mails into {name}; use --restart" in again.lines[0]
    assert len(jobs_in(operator, name)) == 400
    operator.do(*replay(store, "mails", "--into", name, "--restart"))
    assert counted(operator, name) == Counter(dict.fromkeys(range(1, 800, 2), 2))


def test_time_range_filter_and_overrides(
    operator: Operator, wire: Client, name: str, store: Path
) -> None:
    times = ["--from", "2025-11-21T04:41:40", "--to", "2025-11-21T04:43:20"]
    chosen = [
        each
        for each in MESSAGES
        if 100 <= (each.store_timestamp - FIRST_MS) // 1000 < 200
        and each.properties["TAGS"] == "deleted"
        and int(each.properties["pri"]) < 1024
    ]
    filters = ["--filter", "tag=deleted", "--filter", "pri<1024"]
    assert 0 < len(chosen) < 50
    selection = [*times, *filters, "--into", name]
    preview = operator.do(*replay(store, "mails", "--dry-run", "--json", *selection)).json
    assert (preview["jobs"], preview["put_before"]) == (len(chosen), 0)
    result = operator.do(*replay(store, "mails", *selection))
    assert result.lines == [f"put {len(chosen)} jobs of mails into {name}"]
    assert jobs_in(operator, name) == expected(chosen)
    other = ["--pri", 7, "--ttr", 9, "--delay", 1000, "--restart"]
    operator.do("truncate", name, "--yes")
    operator.do(*replay(store, "mails", *selection, *other))
    for body, pri, ttr, delay in jobs_in(operator, name):
        assert (pri, ttr) == (7, 9)
        assert 990 <= delay <= 1000
        assert body in {each.body for each in chosen}
    operator.do("truncate", name, "--yes")
    operator.do(*replay(store, "mails", *selection, "--restart", "--keep-delay"))
    delayed = {each.body: int(each.properties["delay"]) for each in chosen}
    for body, _, _, delay in jobs_in(operator, name):
        assert delayed[body] - 10 <= delay <= delayed[body]


def test_rocketmq_messages_get_default_settings(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    odd = {"KEYS": "order-1", "pri": "high", "ttr": "-1", "delay": "4294967296"}
    messages = [Message(topic="a|b", body=b"%d:" % number, properties=odd) for number in range(5)]
    store = make_store(tmp_path / "store", messages)
    assert operator.fail(MISTAKE, *replay(store, "a|b")).endswith("; use --into TUBE")
    operator.do(*replay(store, "a|b", "--into", name, "--keep-delay"))
    assert jobs_in(operator, name) == [(b"%d:" % number, 65536, 60, 0) for number in range(5)]


def test_jobs_that_cannot_be_put_are_reported(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    messages = [finished(number) for number in range(40)]
    messages[7] = without_body(messages[7])
    messages[9] = finished(9, body=b"x" * 70_000)
    store = make_store(tmp_path / "store", messages, segment_bytes=1 << 17)
    result = operator.try_(*replay(store, "mails", "--into", name))
    assert result.status == PART
    assert result.lines == [
        f"put 38 jobs of mails into {name}; not put, without a body: 1, too big: 1"
    ]
    assert re.fullmatch(
        r"not put: job 7 at offset \d+; the store does not have its body of 70000 bytes",
        result.errors[0],
    )
    assert re.fullmatch(
        r"not put: job 9 at offset \d+; body of 70000 bytes exceeds the server's max-job-size"
        r" of 65535",
        result.errors[1],
    )
    assert counted(operator, name) == Counter(set(range(40)) - {7, 9})
    assert operator.try_(*replay(store, "mails", "--into", name)).status == PART


@OURS
def test_damage_is_reported_once(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(40)])
    log = min((store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[data.index(b"0:")] ^= 1
    log.write_bytes(data)
    result = operator.try_(*replay(store, "mails", "--into", name))
    assert result.status == PART
    assert result.lines == [f"put 39 jobs of mails into {name}; not put, damaged: 1"]
    assert len(result.errors) == 1
    assert result.errors[0].endswith(": leads to 0, where no sound message is")
    assert counted(operator, name) == Counter(range(1, 40))


def test_dry_run_neither_connects_nor_writes(store: Path, state_home: Path) -> None:
    operator = Operator(NO_SERVER)
    selection = ["mails", "--dry-run", "--rate", 50]
    result = operator.do(*replay(store, *selection))
    size = sum(len(each.body) for each in MESSAGES)
    assert result.lines[-1] == (
        f"would put 400 jobs of {size} bytes into mails, stored 2025-11-21T04:40:01.000Z to"
        " 2025-11-21T04:53:19.000Z; takes 8s at 50 per second"
    )
    reported = operator.do(*replay(store, *selection, "--json")).json
    kinds = Counter((int(each.properties["pri"]), each.properties["TAGS"]) for each in MESSAGES)
    assert {(row["pri"], row["tag"]): row["jobs"] for row in reported["kinds"]} == kinds
    rows = [line.split() for line in result.lines[1:-1]]
    assert {(int(row[0]), row[1]): int(row[2]) for row in rows} == kinds
    assert not state_home.exists()


@OURS
def test_replay_includes_undispatched_but_no_later_messages(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with Store.open(folder, BY_HAND) as store:
        store.append([finished(number) for number in range(30)])
        store.dispatch()
        store.append([finished(number) for number in range(30, 50)])
        assert operator.do(*replay(folder, "mails", "--into", name, "--json")).json["put"] == 50
        store.dispatch()
        store.append([finished(number) for number in range(50, 60)])
        store.dispatch()
        operator.do(*replay(folder, "mails", "--into", name))
    assert counted(operator, name) == Counter(range(50))


# --- interruptions ----------------------------------------------------------------------------


class Killed(BaseException):
    """Simulates a kill."""


@pytest.mark.parametrize("seed", range(2))
def test_kill_at_any_moment_omits_no_job(
    operator: Operator, wire: Client, name: str, store: Path, seed: int
) -> None:
    """Kills before and after the acknowledgement, and before and after saving the state."""
    dice = random.Random(seed)
    kills = 0
    for _ in range(20):
        patch = pytest.MonkeyPatch()
        left = [dice.randrange(1, 6)]
        note, is_before = StateFile.save, dice.random() < 0.5

        def dying(
            self: StateFile,
            reached: ReplayState,
            left: list[int] = left,
            is_before: bool = is_before,
            note: Callable[[StateFile, ReplayState], None] = note,
        ) -> None:
            left[0] -= 1
            if left[0] == 0 and is_before:
                raise Killed
            note(self, reached)
            if left[0] == 0:
                raise Killed

        with patch.context() as patched:
            patched.setattr(StateFile, "save", dying)
            try:
                operator.do(*replay(store, "mails", "--into", name))
                break
            except Killed:
                kills += 1
    else:
        raise AssertionError("never finished")
    found = counted(operator, name)
    assert set(found) == set(range(1, 800, 2))
    assert sum(found.values()) - len(found) <= BATCH_JOBS * kills
    assert (
        operator.do(*replay(store, "mails", "--into", name)).lines[0].startswith("already finished")
    )


def killed_and_resumed(
    operator: Operator, wire: Client, name: str, store: Path, kills: int
) -> None:
    """Kill processes when the server has some number of jobs."""
    words = replay(store, "mails", "--into", name, "--rate", 1500)
    dice = random.Random(name)
    for _ in range(kills):
        before = int(ready(wire, name))
        process = operator.start(*words)
        try:
            wait_for_jobs(wire, name, min(before + dice.randrange(1, 80), 399))
        finally:
            process.kill()
            process.wait(10)
    operator.do(*replay(store, "mails", "--into", name))
    found = counted(operator, name)
    assert set(found) == set(range(1, 800, 2))
    assert sum(found.values()) - len(found) <= BATCH_JOBS * kills


def wait_for_jobs(wire: Client, tube: str, count: int) -> None:
    assert eventually(lambda: ready(wire, tube) >= count)


def ready(wire: Client, tube: str) -> int:
    return int(wire.stats(b"stats-tube " + tube.encode())["current-jobs-ready"])


def test_kill_9(operator: Operator, wire: Client, name: str, store: Path) -> None:
    killed_and_resumed(operator, wire, name, store, kills=1)


@pytest.mark.slow
def test_repeated_kill_9(operator: Operator, wire: Client, name: str, store: Path) -> None:
    killed_and_resumed(operator, wire, name, store, kills=8)


@pytest.mark.costly
def test_ctrl_c_duplicates_no_job(operator: Operator, wire: Client, name: str, store: Path) -> None:
    words = replay(store, "mails", "--into", name)
    process = operator.start(*words, "--rate", 300, "--json", stdout=-1, stderr=-1)
    assert eventually(lambda: ready(wire, name) > 20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err.split()[-1]) == (INTERRUPTED, b"interrupted")
    done = json.loads(out)
    assert done["finished"] is False
    assert 20 < done["put"] == ready(wire, name) < 400
    preview = operator.do(*words, "--dry-run", "--json").json
    assert (preview["jobs"], preview["put_before"]) == (400 - done["put"], done["put"])
    result = operator.do(*words)
    assert result.lines == [f"put 400 jobs of mails into {name}"]
    assert result.errors[0].endswith(f"; {done['put']} jobs put so far")
    assert jobs_in(operator, name) == expected(MESSAGES)


@pytest.mark.costly
def test_replay_continues_after_a_server_restart(tmp_path: Path, store: Path) -> None:
    state = str(tmp_path / "mine")
    words = replay(store, "mails", "--state", state)
    binlog = tmp_path / "binlog"
    binlog.mkdir()
    with ours("-b", binlog) as server, server.connect() as wire:
        operator = Operator(f"127.0.0.1:{server.port}")
        process = operator.start(*words, "--rate", 500, stderr=-1)
        assert eventually(lambda: has_tube(wire) and ready(wire, "mails") > 50)
        server.kill()
        _, err = process.communicate(timeout=20)
        assert process.returncode == MISTAKE
        assert re.search(rb"; put \d+ jobs, run the same command again to continue\n$", err)
        assert Operator(NO_SERVER).try_(*words).status == MISTAKE
    with ours("-b", binlog) as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        operator.do(*words)
        found = counted(operator, "mails")
    assert set(found) == set(range(1, 800, 2))
    assert sum(found.values()) - len(found) <= BATCH_JOBS


def has_tube(wire: Client) -> bool:
    return b"- mails" in wire.ask(b"list-tubes\r\n")


@pytest.mark.slow
def test_replay_continues_after_a_refusal(tmp_path: Path) -> None:
    """Jobs after the refused one exist, and are not put again."""
    messages = [finished(number) for number in range(300)]
    # It takes more memory than all jobs may.
    messages[100] = finished(100, body=b"100:" + b"x" * 60000)
    store = make_store(tmp_path / "store", messages, segment_bytes=1 << 17)
    words = replay(store, "mails", "--state", str(tmp_path / "mine"))
    binlog = tmp_path / "binlog"
    binlog.mkdir()
    with ours("-b", binlog, "--max-memory", "60000") as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        for _ in range(2):
            line = operator.fail(PART, *words)
            assert "(OUT_OF_MEMORY)" in line
            put = len(jobs_in(operator, "mails"))
            assert line.endswith(f"; put {put} jobs, run the same command again to continue")
        there = counted(operator, "mails")
        assert set(range(100)) < set(there)
        assert 100 not in there
    with ours("-b", binlog) as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        server.signal(signal.SIGUSR1)
        assert eventually(lambda: "DRAINING" in operator.fail(PART, *words))
    with ours("-b", binlog) as server:
        operator = Operator(f"127.0.0.1:{server.port}")
        assert operator.do(*words).lines == ["put 300 jobs of mails into mails"]
        assert counted(operator, "mails") == Counter(range(300))


@OURS
def test_messages_expired_between_runs_are_counted(
    operator: Operator, wire: Client, name: str, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", [finished(number) for number in range(300)])
    note = StateFile.save

    def dying(self: StateFile, reached: ReplayState) -> None:
        note(self, reached)
        raise Killed

    words = replay(store, "mails", "--into", name)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(StateFile, "save", dying)
        operator.do(*words)
    files = sorted((store / "commitlog").iterdir())
    old = time.time() - 10 * 86400
    for path in files[:-3]:
        os.utime(path, (old, old))
    operator.do("history", "--store", str(store), "expire", "--before", "9d")
    result = operator.try_(*words, "--json")
    assert result.status == PART
    assert result.json["expired"] + result.json["put"] == 300 == result.json["looked_at"]
    assert result.json["put_now"] > 0
    assert result.json["expired"] > 0
    found = counted(operator, name)
    first_kept = 300 - result.json["put_now"]
    assert found == Counter([*range(BATCH_JOBS), *range(first_kept, 300)])


# --- rate -------------------------------------------------------------------------------------


@OURS
def test_a_rate_is_kept(operator: Operator, wire: Client, name: str, store: Path) -> None:
    words = replay(store, "mails", "--into", name, "--rate", 1000, "--json")
    assert 0.35 <= operator.do(*words).json["seconds"] < 20


@pytest.mark.parametrize("rate", [0.5, 3, 99, 100, 1000, 7777, 10**6])
def test_a_rate_is_even(rate: float) -> None:
    """No time window has more jobs than the rate and one batch."""
    dice = random.Random(rate)
    limiter, now, gone = RateLimiter(rate, BATCH_JOBS), 0.0, []
    while len(gone) < 500:
        now += limiter.wait_s(now)
        count = dice.randrange(1, limiter.batch_jobs + 1)
        gone.append((now, count))
        limiter.record(count, now)
        now += dice.choice([0.0, 0.0, 0.001, 0.05])
    for first in range(0, 500, 7):
        for last in range(first, 500, 11):
            seconds = gone[last][0] - gone[first][0]
            # A late replay catches up by at most a tenth of a second.
            most = rate * (seconds + 0.1) + limiter.batch_jobs
            assert sum(count for _, count in gone[first : last + 1]) <= most + 1e-6
    assert limiter.batch_jobs <= max(1, rate / 100)


# --- the state file ---------------------------------------------------------------------------


def test_torn_slot_keeps_the_previous_state(tmp_path: Path) -> None:
    path = tmp_path / "state"
    spec = Replay("/store", "mails", "mails", "2h", "", ["tag=deleted"], total=9)
    assert load(path) is None
    with StateFile.locked(path) as file:
        assert file.load() is None
        file.begin(spec)
        assert file.load() == (spec, ReplayState())
        for offset in range(1, 4):
            before = path.read_bytes()
            reached = ReplayState(offset=offset, put=offset, done_beyond=[2**62 + offset] * 128)
            file.save(reached)
            after = path.read_bytes()
            assert load(path) == (spec, reached)
            first = next(at for at in range(len(after)) if before[at] != after[at])
            for cut in range(first, len(after), 397):
                torn = tmp_path / "torn"
                torn.write_bytes(after[:cut] + before[cut:])
                assert load(torn) in ((spec, reached), load_of(tmp_path, before))
        with pytest.raises(Exception, match="running in another process"):
            StateFile.locked(path).__enter__()
    with StateFile.locked(path) as file:
        assert file.load() == (spec, reached)
        file.save(ReplayState(offset=77))
    assert load(path) == (spec, ReplayState(offset=77))


def test_a_power_cut_keeps_what_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sector that was written since the last sync may have its old or its new content."""
    path, image, dice = tmp_path / "state", tmp_path / "image", random.Random("replay")
    spec = Replay("/store", "mails", "mails", "2h", "", [], total=9)
    with StateFile.locked(path) as file:
        file.begin(spec)
        synced, disk = 0, b""
        for offset in range(1, 100):
            file.save(ReplayState(offset=offset, put=offset, done_beyond=[2**62 + offset] * 128))
            if offset == 1 or dice.random() < 0.2:  # the first one is synced at once
                file.sync()
                synced, disk = offset, path.read_bytes()
                monkeypatch.setattr(state_module, "SYNC_S", 10**9)
            for _ in range(20):
                both = disk, path.read_bytes()
                sectors = (dice.choice(both)[at : at + 512] for at in range(0, len(disk), 512))
                image.write_bytes(b"".join(sectors))
                found = load(image)
                assert found is not None and found[0] == spec
                assert found[1].offset >= synced


def test_a_begin_that_was_cut_begins_again(tmp_path: Path) -> None:
    """Also with a part of the identity, which is synced before anything is put."""
    path = tmp_path / "state"
    spec = Replay("/store", "mails", "mails", "2h", "", [])
    with StateFile.locked(path) as file:
        file.begin(spec)
        whole = path.read_bytes()
        for length in range(0, whole.index(b"}"), 7):
            path.write_bytes(whole[:length].ljust(whole.index(b"\n") + 1, b"\0") + BLANK)
            assert load(path) is None
            assert file.load() is None


def test_two_damaged_slots_are_refused(tmp_path: Path) -> None:
    """Instead of putting everything again."""
    path = tmp_path / "state"
    with StateFile.locked(path) as file:
        file.begin(Replay("/store", "mails", "mails", "2h", "", []))
        for offset in (1, 2, 3):
            file.save(ReplayState(offset=offset))
    path.write_bytes(path.read_bytes().replace(b'"offset"', b'"0ffset"'))
    with pytest.raises(ToolUsageError, match="damaged"):
        load(path)


def load_of(folder: Path, data: bytes) -> object:
    path = folder / "before"
    path.write_bytes(data)
    return load(path)


# --- usage errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nope"], ": 'nope'; 'topics' lists all"),
        (["mails", "--filter", "pri"], "option --filter: 'pri' is no condition; give one such as"),
        (
            ["mails", "--filter", "body~("],
            "option --filter: 'body~(': this is no regular expression",
        ),
        (["mails", "--from", "1h"], "tube mails has no job stored from 2"),
        (["mails", "--to", "2000-01-01"], "has no job stored to 2000-01-01T00:00:00.000Z"),
        (["mails", "--from", "1h", "--to", "2h"], "--from is not before --to"),
        (["mails", "--from", "soon"], "option --from: invalid time 'soon'"),
        (["mails", "--rate", "0"], "option --rate: invalid rate '0'"),
        (["mails", "--rate", "nan"], "option --rate: invalid rate 'nan'"),
        (["mails", "--into", "-x"], "option --into: invalid tube name '-x'"),
        (["mails", "--pri", "4294967296"], "option --pri: 4294967296 is too large"),
        (["mails", "--delay", "1", "--keep-delay"], "--delay and --keep-delay exclude each other"),
        (["mails", "--state", "/proc/none/x"], "no server at"),
    ],
)
def test_usage_error_is_one_line(
    store: Path, words: list[str], what: str, state_home: Path
) -> None:
    result = Operator(NO_SERVER).try_(*replay(store, *words))
    assert (result.status, result.out, len(result.errors)) == (MISTAKE, b"", 1)
    assert what in result.errors[0]
    assert not state_home.exists()


@OURS
def test_errors_found_after_opening_the_store(
    operator: Operator, wire: Client, name: str, store: Path, tmp_path: Path
) -> None:
    line = operator.fail(MISTAKE, *replay(store, "mails", "--into", name, "--filter", "pri=3"))
    assert line == "no job of tube mails stored until now matches --filter"
    state = tmp_path / "mine"
    operator.do(*replay(store, "mails", "--into", name, "--state", str(state)))
    line = operator.fail(MISTAKE, *replay(store, "other", "--into", name, "--state", str(state)))
    assert line == (
        f"{state} belongs to a replay with another topic; use another --state FILE, or --restart"
    )
    strange = tmp_path / "notes.txt"
    strange.write_text("buy milk\n")
    words = replay(store, "mails", "--into", name, "--state", str(strange))
    assert "is not the state of a replay" in operator.fail(MISTAKE, *words)
    assert strange.read_text() == "buy milk\n"
    line = operator.fail(MISTAKE, *replay(store, "mails", "--state", "/proc/none/x"))
    assert line.startswith("cannot write ")
    assert line.endswith("; use --state FILE")
