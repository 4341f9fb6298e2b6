"""tools/workload on both servers, and what `--check` reports about modified logs and files."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from servers import ours

TOOL = Path(__file__).resolve().parents[2] / "tools" / "workload"
SAME = ("--jobs=400", "--seed=5", "--profile=failing", "--tubes=5", "--max-job-size=8K")
LINE_TIMES = ("at_ns", "sent_ns")
SLACK_NS = 50_000_000

Line = dict[str, Any]
Lines = list[Line]


@dataclass(frozen=True)
class Made:
    log: Path
    binlog: Path
    history: Path | None = None

    def lines(self) -> Lines:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def start(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(TOOL), *map(str, args)]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def environment(**more: str) -> dict[str, str]:
    """Unset PYTHONSAFEPATH, because the script imports modules of its folder."""
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return rest | more


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=50)
    return process.returncode, stderr


def check(made: Made, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    from workloadlib.command import main

    history = ["--history", str(made.history)] if made.history else []
    status = main(["--check", str(made.log), str(made.binlog), *history])
    return status, capsys.readouterr().err


RUNS: dict[str, tuple[str, ...]] = {
    "c": ("--server=c",),
    "ours": ("--binlog-size=40K",),
    "workers": ("--workers=2", "--truncate=1"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """All runs, made concurrently because they mostly wait."""
    top = tmp_path_factory.mktemp("made")
    runs: dict[str, Made] = {}
    processes = []
    for name, args in RUNS.items():
        history = top / "history" if name == "workers" else None
        runs[name] = Made(top / f"{name}.jsonl", top / name, history)
        more = [f"--history={history}"] if history else []
        folder, log = f"--binlog-dir={top / name}", f"--log={runs[name].log}"
        processes.append(start(*SAME, folder, log, *args, *more))
    for process in processes:
        status, stderr = ended(process)
        assert status == 0, stderr
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_log_and_files_agree(
    made: dict[str, Made], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, stderr = check(made[name], capsys)
    assert status == 0, stderr
    assert "log and binlog agree: 400 jobs" in stderr
    assert ("log and history agree" in stderr) == (made[name].history is not None)


@pytest.mark.slow
def test_all_events_occur_and_jobs_are_left_in_every_state(made: dict[str, Made]) -> None:
    lines = made["workers"].lines()
    events = {"put", "reserve", "release", "bury", "kick", "touch", "delete", "timeout", "return"}
    assert set(lines[-1]["by_event"]) == events | {"due", "truncate"}
    left: Counter[str] = Counter()
    for states in lines[-1]["left"].values():
        left.update(states)
    assert all(left[state] > 0 for state in ("ready", "reserved", "delayed", "buried"))
    assert sum(left.values()) == 400 - sum(
        lines[-1]["by_event"][kind] for kind in ("delete", "truncate")
    )


def without_times(lines: Lines) -> Lines:
    return [{key: line[key] for key in line if key not in LINE_TIMES} for line in lines]


@pytest.mark.costly
def test_the_same_seed_sends_the_same_commands_to_any_server(made: dict[str, Made]) -> None:
    one, other = (without_times(made[name].lines()[1:]) for name in ("c", "ours"))
    assert one == other and len(one) > 1000


def test_events_happened_between_their_times(made: dict[str, Made]) -> None:
    from workloadlib.check import _read

    from beanstalkd_py.binlog.folders import inspect_folder

    entries: Lines = []
    _read(inspect_folder(made["workers"].binlog), entries.append)
    by_event: dict[tuple[int, str], list[Line]] = {}
    for line in made["workers"].lines()[1:-1]:
        by_event.setdefault((line["id"], line["event"]), []).append(line)
    looked = 0
    for entry in entries:
        event = {"deleted": "delete", "buried": "bury"}.get(entry["state"], "put")
        lines = by_event.get((entry["id"], event))
        if (event == "put" and entry["kind"] == "short") or lines is None:
            continue
        text = entry["created_at"] if event == "put" else entry["event_at"]
        at_ns = wall_ns(text)
        assert any(
            line["sent_ns"] - SLACK_NS <= at_ns <= line["at_ns"] + SLACK_NS for line in lines
        ), (entry, lines)
        looked += 1
    assert looked > 500


def wall_ns(text: str) -> int:
    """Parse 2023-11-14T22:13:20.123456789Z."""
    seconds = datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
    return int(seconds) * 10**9 + int(text[20:29])


@pytest.mark.slow
def test_an_existing_server_can_be_used_once(made: dict[str, Made], tmp_path: Path) -> None:
    """Its tubes are in use afterwards."""
    log = tmp_path / "log"
    with ours() as server:
        args = (*SAME, f"--server=127.0.0.1:{server.port}", f"--log={log}")
        status, stderr = ended(start(*args))
        assert status == 0, stderr
        assert ended(start(*args))[0] == 2
    there = Made(log, tmp_path)
    assert without_times(there.lines()[1:]) == without_times(made["c"].lines()[1:])


def test_removed_files_are_restored(made: dict[str, Made]) -> None:
    """With 40 KiB files, some are removed and compaction moves jobs."""
    numbers = sorted(int(path.suffix[1:]) for path in made["ours"].binlog.glob("binlog.*"))
    assert numbers[0] == 1 and numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 3
    assert not made["ours"].binlog.with_name("ours.kept").exists()


@pytest.mark.slow
def test_a_binlog_without_its_removed_files_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from workloadlib.command import main

    made = Made(tmp_path / "log", tmp_path / "binlog")
    to = [f"--binlog-dir={made.binlog}", f"--log={made.log}"]
    args = ["--jobs=1500", "--seed=2", "--no-keep-files", "--binlog-size=16K", "--max-job-size=4K"]
    assert main([*args, *to]) == 0, capsys.readouterr().err
    assert not (made.binlog / "binlog.1").exists()
    capsys.readouterr()
    status, stderr = check(made, capsys)
    assert status == 0 and "in files that were removed" in stderr, stderr


@pytest.mark.costly
def test_stats_of_many_tubes_are_pipelined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One by one, 100,000 tubes take most of a minute."""
    from workloadlib.command import main
    from workloadlib.connection import Connection

    asked: list[int] = []
    ask = Connection.ask

    def counted(self: Connection, commands: Sequence[bytes]) -> Any:
        asked.append(len(commands))
        return ask(self, commands)

    monkeypatch.setattr(Connection, "ask", counted)
    made = Made(tmp_path / "log", tmp_path / "binlog")
    to = [f"--binlog-dir={made.binlog}", f"--log={made.log}"]
    assert main(["--jobs=10", "--tubes=3000", *to]) == 0, capsys.readouterr().err
    # Each tube is watched twice and queried before and after.
    assert sum(asked) > 4 * 3000 and len(asked) < 300 and max(asked) <= 256
    assert check(made, capsys)[0] == 0


# --- faults that --check finds -----------------------------------------------------------------


def copied(made: Made, top: Path) -> Made:
    shutil.copytree(made.binlog, top / "binlog", symlinks=True)
    shutil.copy(made.log, top / "log")
    return Made(top / "log", top / "binlog", made.history)


def entry_of(made: Made, is_it: Callable[[Line], bool]) -> Line:
    from workloadlib.check import _read

    from beanstalkd_py.binlog.folders import inspect_folder

    entries: Lines = []
    _read(inspect_folder(made.binlog), entries.append)
    return next(entry for entry in entries if is_it(entry))


@contextmanager
def changed(made: Made, entry: Line) -> Iterator[bytearray]:
    """Yield the bytes of a file and write them back."""
    path = made.binlog / entry["file"]
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)


def remove_entry(made: Made, is_it: Callable[[Line], bool]) -> None:
    """Remove an entry from its file."""
    entry = entry_of(made, is_it)
    start = entry["offset"]
    with changed(made, entry) as data:
        del data[start : start + entry["bytes"]]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    ("state", "kind"), [("ready", "full"), ("deleted", "short"), ("buried", "short")]
)
def test_a_missing_entry_is_reported(
    made: dict[str, Made],
    name: str,
    state: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoilt = copied(made[name], tmp_path)
    remove_entry(
        spoilt,
        lambda entry: (entry["state"], entry["kind"]) == (state, kind) and entry["ttr_s"] > 0,
    )
    status, stderr = check(spoilt, capsys)
    assert status == 1 and "wrong: " in stderr


@pytest.mark.costly
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_flipped_bit_of_a_body_is_reported(
    made: dict[str, Made],
    name: str,
    is_last: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoilt = copied(made[name], tmp_path)
    entry = entry_of(spoilt, lambda entry: entry["kind"] == "full")
    end = entry["offset"] + entry["bytes"] - len(b"\r\n")
    with changed(spoilt, entry) as data:
        data[end - 1 if is_last else end - entry["body_bytes"]] ^= 4
    status, stderr = check(spoilt, capsys)
    assert status == 1 and f"wrong: {entry['file']}:{entry['offset']}: " in stderr
    if name == "c":
        assert "log and binlog disagree 1 times" in stderr
        assert f"job {entry['id']} has another body: its sha is " in stderr


TTR_AT, CREATED_AT, DEADLINE_AT = 24, 40, 48
"""The times of an entry that the test changes."""


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize(
    ("state", "kind", "at", "message"),
    [
        ("ready", "full", CREATED_AT, "was not put at "),
        ("buried", "short", CREATED_AT, "was not put at "),
        ("deleted", "short", TTR_AT, "has another tube, TTR or size: "),
        ("deleted", "short", CREATED_AT, "was not put at "),
        ("delayed", "short", TTR_AT, "has another tube, TTR or size: "),
        ("delayed", "short", DEADLINE_AT, "the log has no such event: delayed at "),
        ("delayed", "full", DEADLINE_AT, "the log has no such event: delayed at "),
    ],
)
def test_a_wrong_time_is_reported(
    made: dict[str, Made],
    hours: int,
    state: str,
    kind: str,
    at: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Entries of C beanstalkd have no checksum."""
    spoilt = copied(made["c"], tmp_path)
    entry = entry_of(spoilt, lambda each: (each["state"], each["kind"]) == (state, kind))
    place = entry["offset"] + 4 + (len(entry["tube"]) if kind == "full" else 0) + at
    with changed(spoilt, entry) as data:
        (time,) = struct.unpack_from("<q", data, place)
        # A TTR of a minute minus an hour would be a value that no server writes.
        more = 3600 * 10**9 * hours if at != TTR_AT or hours > 0 else 10**9 - time
        struct.pack_into("<q", data, place, time + more)
    status, stderr = check(spoilt, capsys)
    assert status == 1
    assert (
        f"wrong: {entry['file']}:{entry['offset']}: job {entry['id']}" in stderr
        and message in stderr
    )


def rewritten(made: Made, lines: Lines) -> None:
    """Write a log with consistent numbers and totals."""
    for seq, line in enumerate(lines[1:-1], 1):
        line["seq"] = seq
    lines[-1]["events"] = len(lines) - 2
    lines[-1]["by_event"] = dict(Counter(line["event"] for line in lines[1:-1]))
    made.log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def add_a_put(lines: Lines) -> None:
    lines.insert(-1, {**lines[1], "id": 10**6, "event": "put"})


def add_a_delete(lines: Lines) -> None:
    dead = {line["id"] for line in lines if line["event"] in ("delete", "truncate")}
    put = next(line for line in lines if line["event"] == "put" and line["id"] not in dead)
    lines.insert(-1, {**put, "event": "delete"})


def remove_a_bury(lines: Lines) -> None:
    lines.remove(next(line for line in lines if line["event"] == "bury"))


def change_a_priority(lines: Lines) -> None:
    next(line for line in lines if line["event"] == "put")["pri"] += 1


def change_a_body(lines: Lines) -> None:
    for line in lines[1:-1]:
        if line["id"] == lines[1]["id"]:
            line["body_sha"] = "0" * 16


def change_a_tube(lines: Lines) -> None:
    first = lines[1]["tube"]
    for line in lines[1:-1]:
        if line["id"] == lines[1]["id"]:
            line["tube"] = f"{first}-x"


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    "spoil",
    [add_a_put, add_a_delete, remove_a_bury, change_a_priority, change_a_tube, change_a_body],
)
def test_a_wrong_log_is_reported(
    made: dict[str, Made],
    name: str,
    spoil: Callable[[Lines], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoilt = Made(tmp_path / "log", made[name].binlog)
    lines = made[name].lines()
    spoil(lines)
    rewritten(spoilt, lines)
    status, stderr = check(spoilt, capsys)
    assert status == 1 and "log and binlog disagree" in stderr


def test_other_events_in_a_history_are_reported(
    made: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made["workers"]
    spoilt = Made(tmp_path / "log", whole.binlog, whole.history)
    lines = whole.lines()
    ended = {line["id"] for line in lines if line["event"] == "delete"}
    touched = [line for line in lines if line["event"] == "touch" and line["id"] in ended]
    lines.remove(touched[0])
    rewritten(spoilt, lines)
    status, stderr = check(spoilt, capsys)
    assert status == 1 and f"history: job {touched[0]['id']} has put" in stderr


def test_another_body_in_a_history_is_reported(
    made: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made["workers"]
    spoilt = Made(tmp_path / "log", whole.binlog, whole.history)
    lines = whole.lines()
    ended = next(line["id"] for line in lines if line["event"] == "delete")
    for line in lines[1:-1]:
        if line["id"] == ended:
            line["body_sha"] = f"{int(line['body_sha'], 16) ^ 1:016x}"
    rewritten(spoilt, lines)
    status, stderr = check(spoilt, capsys)
    assert status == 1 and f"history: job {ended} has another body: its sha is " in stderr


def test_an_incomplete_log_is_reported(
    made: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made["c"].log.read_text().splitlines(keepends=True)
    spoilt = Made(tmp_path / "log", made["c"].binlog)
    for lines in ([*whole[:5], whole[4], *whole[5:]], [*whole[:5], *whole[6:]], whole[:-1]):
        spoilt.log.write_text("".join(lines))
        status, stderr = check(spoilt, capsys)
        assert status == 1 and "wrong: log: " in stderr


def test_a_due_known_from_a_copy_only_may_be_missing() -> None:
    from workloadlib.check_history import _lacks_dues

    log = ["put", "due", "reserve", "release", "due", "delete"]
    assert _lacks_dues(["put", "reserve", "release", "due", "delete"], log)
    assert _lacks_dues(["put", "reserve", "release", "delete"], log)
    for other in (log, [*log, "delete"], log[:-1], ["put", "due", "release", "due", "delete"]):
        assert not _lacks_dues(other, log)


# --- options -----------------------------------------------------------------------------------


def test_errors_are_one_line(
    made: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from workloadlib.command import main

    log = f"--log={tmp_path}/log"
    for args, words in (
        (["--jobs=1"], "--log FILE"),
        ([log], "--jobs N or --bytes B"),
        (["--jobs=1", "--bytes=1K", log], "--jobs N or --bytes B"),
        (["--jobs=1", log], "--binlog-dir DIR"),
        (["--jobs=1", log, f"--binlog-dir={made['c'].binlog}"], "not empty"),
        (["--jobs=1", log, "--server=c", "--truncate=1"], "C beanstalkd"),
        (["--jobs=1", log, "--server=c", "--workers=2", "--binlog-dir=x"], "C beanstalkd"),
        (["--jobs=1", log, "--server=nobody"], "HOST:PORT"),
        (["--jobs=1", log, "--speed=nan"], "--speed nan: give 0, or a number from 0.001 on"),
        (["--jobs=1", log, "--speed=inf"], "--speed inf: give 0"),
        (["--jobs=1", log, "--speed=-1"], "--speed -1.0: give 0"),
        (["--jobs=1", log, "--speed=1e-300"], "--speed 1e-300: give 0"),
        (["--jobs=1", log, "--truncate=-1"], "--truncate cannot be below 0"),
        (["--jobs=1", log, "--tubes=100001"], "--tubes 100001: 100000 at most"),
        (["--jobs=1", log, "--tubes=10001", "--server=c"], "--tubes 10001: 10000 at most"),
        (["--jobs=1", log, "--server=127.0.0.1:1"], "no server at"),
        (["--check", f"{tmp_path}/none", f"{tmp_path}"], "cannot read"),
        (["--check", str(made["c"].log), f"{tmp_path}/none"], "does not exist"),
    ):
        status = main(args)
        stderr = capsys.readouterr().err
        assert (status, stderr.count("\n")) == (2, 1) and words in stderr, stderr
    assert not (tmp_path / "log").exists()


def test_contradicting_stats_exit_with_1(
    tmp_path: Path,
) -> None:
    """A server whose stats contradict its replies."""
    server = tmp_path / "server"
    server.write_text(
        "#!/bin/sh\n"
        'port=; while [ $# -gt 0 ]; do [ "$1" = -p ] && port=$2; shift; done\n'
        f'exec {sys.executable} {tmp_path}/liar.py "$port"\n'
    )
    server.chmod(0o755)
    (tmp_path / "liar.py").write_text(LIAR)
    command = [sys.executable, str(TOOL), "--jobs=5", "--server=c", f"--log={tmp_path}/log"]
    done = subprocess.run(
        [*command, f"--binlog-dir={tmp_path}/b"],
        env=environment(BEANSTALKD_PATH=str(server)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 1 and "got b'NOT_FOUND'" in done.stderr


LIAR = """
import os, socketserver, sys

class Talk(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            word = line.split()[0]
            if word == b"put":
                self.rfile.read(int(line.split()[4]) + 2)
            stats = b"pid: %d\\ntotal-jobs: 0\\ncurrent-watching: 1\\n" % os.getpid()
            self.wfile.write({
                b"put": b"NOT_FOUND",
                b"stats": b"OK %d\\r\\n%b" % (len(stats), stats),
                b"stats-tube": b"OK %d\\r\\n%b" % (len(stats), stats),
                b"use": b"USING x",
            }.get(word, b"WATCHING 1") + b"\\r\\n")

socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Talk).serve_forever()
"""
