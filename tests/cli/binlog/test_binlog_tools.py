"""`beanstalkd-py binlog`: exit statuses, output, help, locked folders."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from binlog.damaged_folders import make, snapshot
from binlog.generations import bring_to
from binlog.reader import files, read_folder
from binlog.test_folder import HOLD_LOCK
from cli.commands import refusal, run
from servers import ours, reference

from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.cli.main import main

DAMAGED = 1
MISTAKE = 2
READING = ("dump", "verify", "stats")
CHANGING = ("compact", "repair")
ALL = (*READING, *CHANGING)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "jobs"
    make("ours", path)
    return path


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    shutil.copytree(whole, path)
    return path


def corrupt_one_entry(folder: Path) -> int:
    """Flip one bit; return the offset of its entry."""
    entry = read_folder(folder)[1]
    path = folder / f"binlog.{entry.file}"
    data = bytearray(path.read_bytes())
    data[entry.offset + 40] ^= 1
    path.write_bytes(data)
    return entry.offset


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Lock the folder in another process; yield its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.stdin.close()


# --- statuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ALL)
def test_clean_folder_prints_a_summary(folder: Path, command: str) -> None:
    done = run("binlog", command, folder)
    assert done.returncode == 0, done
    assert done.stderr.startswith("beanstalkd-py: clean, files: ") == (command == "verify")
    assert (done.stdout == "") == (command == "verify")
    assert not folder.with_name("jobs.repaired").exists()


@pytest.mark.costly
def test_damage_is_one_line_and_status_1(folder: Path) -> None:
    offset = corrupt_one_entry(folder)
    done = run("binlog", "verify", folder)
    assert done.returncode == DAMAGED
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"binlog.1:{offset}: unreadable entry: its checksum is wrong")
    for command in ("dump", "stats"):
        done = run("binlog", command, folder)
        assert done.returncode == DAMAGED
        assert f"binlog.1:{offset}" in done.stdout + done.stderr
    assert "binlog repair" in refusal(DAMAGED, "binlog", "compact", folder)


@pytest.mark.costly
def test_json_output(folder: Path) -> None:
    offset = corrupt_one_entry(folder)
    verdict = json.loads(run("binlog", "verify", "--json", folder).stdout)
    assert verdict["clean"] is False
    assert verdict["damage"][0] | {"bytes": 0, "what": ""} == {
        "file": "binlog.1",
        "offset": offset,
        "bytes": 0,
        "kind": "damage",
        "what": "",
    }
    usage = json.loads(run("binlog", "stats", "--json", folder).stdout)
    assert usage["total"]["jobs"] == verdict["jobs"] == sum(f["jobs"] for f in usage["files"])
    assert usage["total"]["bytes"] == sum(path.stat().st_size for path in files(folder))
    rows = [
        json.loads(line) for line in run("binlog", "dump", "--json", folder).stdout.splitlines()
    ]
    assert [row for row in rows if row["kind"] == "damage"] == verdict["damage"]
    done = json.loads(run("binlog", "repair", "--json", folder).stdout)
    assert done["not_kept"] == verdict["damage"]
    assert (done["jobs"], done["output"]) == (verdict["jobs"], f"{folder}.repaired")
    freed = json.loads(run("binlog", "compact", "--json", done["output"]).stdout)
    assert freed["bytes_freed"] == 0  # it is compact already
    assert freed["jobs"] == verdict["jobs"]


@pytest.mark.costly
def test_repair_reports_losses(folder: Path, tmp_path: Path) -> None:
    offset = corrupt_one_entry(folder)
    unchanged = snapshot(folder)
    done = run("binlog", "repair", "--output", tmp_path / "new", folder)
    assert done.returncode == 0
    lost, wrote = done.stdout.splitlines()
    assert lost.startswith(f"binlog.1:{offset}: ")
    assert wrote.startswith(f"wrote {tmp_path / 'new'}; jobs: ")
    assert snapshot(folder) == unchanged
    assert run("binlog", "verify", tmp_path / "new").returncode == 0
    with ours("-b", tmp_path / "new") as server:
        assert server.complaints() == ""


def test_compact_reports_freed_bytes(folder: Path) -> None:
    before = sum(path.stat().st_size for path in files(folder))
    done = run("binlog", "compact", folder)
    after = sum(path.stat().st_size for path in files(folder))
    assert done.stdout.startswith(f"freed {before - after} bytes; jobs: ")
    jobs, length_file = files(folder)
    assert length_file.stat().st_size == 4 + 84
    assert {path.name for path in folder.iterdir()} == {"lock", jobs.name, length_file.name}


def test_compact_has_a_bar_on_a_terminal(folder: Path) -> None:
    ours_end, its_end = pty.openpty()
    command = [sys.executable, "-m", "beanstalkd_py", "binlog", "compact", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its_end) as process:
        os.close(its_end)
        text = b""
        with contextlib.suppress(OSError):
            while piece := os.read(ours_end, 4096):
                text += piece
        os.close(ours_end)
    assert process.returncode == 0
    assert b"compacting" in text and b"100%" in text


# --- usage errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "name"), [*zip(ALL, ["no", "file"] * 3, strict=False)])
def test_missing_folder(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    line = refusal(MISTAKE, "binlog", command, tmp_path / name)
    assert str(tmp_path / name) in line and "give the folder of -b" in line


@pytest.mark.parametrize("command", ["verify", "dump", "stats", "compact", "repair"])
def test_a_folder_without_binlogs(tmp_path: Path, command: str) -> None:
    """Such a folder is not clean, and nothing is written to it."""
    (tmp_path / "notes.txt").write_bytes(b"")
    line = refusal(MISTAKE, "binlog", command, tmp_path)
    assert f"no binlog files in {tmp_path}; give the folder of -b" in line
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dump", "--state", "lost"], ["--state", "buried"]),
        (["dump", "--since", "yesterday"], ["--since", "15m"]),
        (["dump", "--id", "x"], ["--id", "a job id"]),
        (["dump", "--id", "0"], ["--id", "minimum is 1"]),
        (["dump", "--colour"], ["--colour", "--help"]),
        (["verify", "--fix"], ["--fix", "--help"]),
        (["compact", "-s", "0"], ["-s", "minimum is 1"]),
        (["repair", "--output"], ["requires a value"]),
    ],
)
def test_wrong_options(
    folder: Path, args: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["binlog", args[0], str(folder), *args[1:]])
    assert end.value.code == MISTAKE
    out, errors = capsys.readouterr()
    assert out == "" and errors.count("\n") == 1
    for word in words:
        assert word in errors


@pytest.mark.costly
def test_repair_overwrites_nothing(folder: Path, tmp_path: Path) -> None:
    corrupt_one_entry(folder)
    (tmp_path / "there").mkdir()
    line = refusal(MISTAKE, "binlog", "repair", "-o", tmp_path / "there", folder)
    assert "give another --output" in line
    inside = refusal(MISTAKE, "binlog", "repair", "-o", folder / "new", folder)
    assert "inside the damaged folder" in inside
    orphan = refusal(MISTAKE, "binlog", "repair", "-o", tmp_path / "no" / "new", folder)
    assert "is no directory" in orphan


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_shards_without_layout(folder: Path, command: str) -> None:
    bring_to(folder, Layout(3))
    (folder / "layout").unlink()
    assert "shard-000" in refusal(MISTAKE, "binlog", command, folder)


@pytest.mark.parametrize("command", ["dump", "compact"])
def test_an_interrupted_resharding(folder: Path, command: str) -> None:
    (folder / "reshard.done").mkdir()
    assert "binlog reshard" in refusal(MISTAKE, "binlog", command, folder)


# --- locked folders -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(), Layout(2)], ids=["whole", "divided"])
def test_rewrite_commands_reject_a_locked_folder(folder: Path, layout: Layout) -> None:
    bring_to(folder, layout)
    lock = folder / ("lock" if layout == Layout() else "layout.lock")
    unchanged = snapshot(folder)
    with locked(lock) as holder, ThreadPoolExecutor() as at_once:
        refused = [at_once.submit(refusal, MISTAKE, "binlog", name, folder) for name in CHANGING]
        read = [at_once.submit(run, "binlog", name, folder) for name in READING]
        for refusing in refused:
            assert f"is locked by process {holder}; stop the server" in refusing.result()
        for reading in read:
            assert reading.result().returncode == 0
    assert snapshot(folder).items() >= unchanged.items()


@pytest.mark.costly
@pytest.mark.parametrize("start", [ours, reference], ids=["ours", "c"])
def test_beside_a_running_server(tmp_path: Path, start: object) -> None:
    with start("-b", tmp_path, "-s", "8192") as server, server.connect() as client:  # type: ignore[operator]
        kept = client.put(b"kept" * 100)
        for _ in range(60):
            client.ask(b"delete %d\r\n" % client.put(b"x" * 300))
        verdict = json.loads(run("binlog", "verify", "--json", tmp_path).stdout)
        assert (verdict["clean"], verdict["jobs"], verdict["tails"]) == (True, 1, [])
        usage = json.loads(run("binlog", "stats", "--json", tmp_path).stdout)
        assert usage["total"]["jobs"] == 1
        rows = run("binlog", "dump", "--json", "--id", str(kept), tmp_path).stdout.splitlines()
        assert all(json.loads(row)["id"] == kept for row in rows) and rows


def test_incomplete_last_entry_of_a_live_folder_is_no_damage(folder: Path) -> None:
    entry = read_folder(folder)[-1]
    path = folder / f"binlog.{entry.file}"
    size = path.stat().st_size
    data = path.read_bytes()[: entry.offset + entry.size // 2]
    path.write_bytes(data + bytes(size - len(data)))
    place = f"binlog.{entry.file}:{entry.offset}: "
    with locked(folder / "lock"):
        done = run("binlog", "verify", folder)
        assert done.returncode == 0 and done.stdout == ""
        assert f"{place}the server is writing here" in done.stderr
    done = run("binlog", "verify", folder)
    assert done.returncode == DAMAGED
    assert done.stdout == f"{place}the last entry was not written to its end\n"


def test_corruption_in_a_live_folder_is_damage(folder: Path) -> None:
    offset = corrupt_one_entry(folder)
    with locked(folder / "lock"):
        done = run("binlog", "verify", folder)
    assert done.returncode == DAMAGED
    assert done.stdout.startswith(f"binlog.1:{offset}: ")


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*ALL, "reshard"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_has_an_example(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["binlog", command, option])
    assert end.value.code == 0
    usage, text = capsys.readouterr().out.split("\n", 1)
    assert usage.startswith(f"Usage: beanstalkd-py binlog {command}")
    assert f" beanstalkd-py binlog {command} " in text
