"""The binlog folders of the workers, their lock, and resharding at a start."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from binlog.generations import contents, divided_as, fill
from binlog.test_folder import HOLD_LOCK
from cli.commands import refusal, run
from core.rig import Rig
from servers import ours

from beanstalkd_py import errors
from beanstalkd_py.binlog import progress, reshard
from beanstalkd_py.binlog.layout import (
    WHOLE,
    Layout,
    folders_of,
    is_whole,
    present_layout,
    read_layout,
)
from beanstalkd_py.binlog.progress import log_lines
from beanstalkd_py.control.client import connect
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent.shard_folders import lock_shard_folders, with_workers

TOOL_USAGE = 2


def paths_of(folder: Path, layout: Layout) -> list[str]:
    return [str(path) for path in folders_of(folder, layout)]


# --- at the start of a server -------------------------------------------------------------------


def test_one_worker_uses_the_folder_unchanged(folder: Path) -> None:
    taken = lock_shard_folders(str(folder), 1)
    assert (taken.paths, taken.lock) == ([str(folder)], None)
    assert list(folder.iterdir()) == []


def test_a_new_folder_gets_a_shard_per_worker(folder: Path) -> None:
    for _ in range(3):
        taken = lock_shard_folders(str(folder), 3, b":")
        assert taken.paths == paths_of(folder, Layout(3))
        for path in taken.paths:
            with Rig(Path(path)) as rig:
                rig.client().put()
        taken.close()


@pytest.mark.parametrize("processors", [2, 8])
@pytest.mark.parametrize("layout", [WHOLE, Layout(3), Layout(3, b"-")], ids=str)
def test_a_folder_keeps_its_layout_without_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, processors: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    fill(folder)
    lock_shard_folders(str(folder), layout.workers, layout.colocate).close()

    def chosen(options: ServeOptions) -> Layout:
        found = with_workers(replace(options, binlog_dir=str(folder)))
        return Layout.wanted(found.workers, found.colocate)

    assert chosen(ServeOptions()) == layout
    assert chosen(ServeOptions(workers=5)) == Layout(5)
    assert chosen(ServeOptions(colocate=b"+")) == Layout.wanted(layout.workers, b"+")


def test_a_start_after_a_crash_of_a_reshard_keeps_the_new_layout(folder: Path) -> None:
    fill(folder)
    lock_shard_folders(str(folder), 3).close()
    (folder / "reshard.done").mkdir()
    (folder / "reshard.done" / "layout").write_bytes(Layout(2).to_bytes())
    assert present_layout(folder) == Layout(2)
    (folder / "reshard.done" / "layout").unlink()
    assert present_layout(folder) == Layout(3)


@pytest.mark.slow
def test_a_reload_does_not_report_the_kept_layout(folder: Path) -> None:
    fill(folder)
    for workers in ("3", "auto", "1", "auto"):
        with ours("-b", folder, "--workers", workers, "-V") as server:
            server.signal(signal.SIGHUP)
            layout = read_layout(folder) or WHOLE
            assert layout.workers == (3 if workers == "3" else layout.workers)
            with connect(f"127.0.0.1:{server.port}") as control:
                assert control.ask("reload") == {"applied": {}, "waiting": {}}
                assert len(list(control.parts("workers"))) == layout.workers
        assert ("reshard" in server.stderr()) == (workers != "auto")


def test_a_start_with_another_number_of_workers_reshards(folder: Path) -> None:
    fill(folder)
    before = contents([folder])
    for layout in (Layout(4), Layout(4, b"-"), Layout(2, b"-"), WHOLE):
        taken = lock_shard_folders(str(folder), layout.workers, layout.colocate, 8192)
        assert taken.paths == paths_of(folder, layout)
        taken.close()
        assert divided_as(folder, layout) == before
    names = {path.name for path in folder.iterdir()}
    assert {name for name in names if not name.startswith("binlog.")} == {"lock"}


@pytest.mark.slow
def test_a_server_locks_the_folder(folder: Path) -> None:
    """Against servers with any number of workers."""
    fill(folder)
    taken = lock_shard_folders(str(folder), 3)
    try:
        for workers in ("1", "2", "4"):
            line = refusal_after_lines(
                TOOL_USAGE, "binlog", "reshard", "--workers", workers, folder
            )
            assert "is locked by another process" in line
    finally:
        taken.close()
    assert run("binlog", "reshard", "--workers", "2", folder).returncode == 0


def test_a_server_with_one_worker_locks_the_folder_against_several(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(errors.BinlogLockedError, match="is locked by another process"):
            lock_shard_folders(str(folder), 2)
        holder.stdin.close()
    assert is_whole(folder)


@pytest.mark.costly
def test_a_start_completes_a_crashed_reshard(folder: Path) -> None:
    """The staged layout is in force; the start then reshards to the wanted one."""
    from binlog.generations import killed_at

    fill(folder)
    before = contents([folder])
    nth = 1
    while not (folder / "reshard.done").exists():
        assert killed_at(folder, Layout(3), nth)
        nth += 1
    lock_shard_folders(str(folder), 1).close()
    assert divided_as(folder, WHOLE) == before


def test_a_stop_signal_ends_resharding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder)

    def hang(*_: object, **__: object) -> int:
        # The parent has one thread at this point, and blocks the signal until it has a handler.
        # The test runner has more threads, and the signal would kill one of them.
        time.sleep(0.5)
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(50)
        return 0

    monkeypatch.setattr(reshard, "reshard", hang)
    begun = time.monotonic()
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(errors.WorkerError, match="stopped during the reshard") as stopped:
        lock_shard_folders(str(folder), 2)
    assert stopped.value.status == 0
    assert signal.getsignal(signal.SIGTERM) is handler
    assert time.monotonic() - begun < 20


def test_a_killed_child_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object, **__: object) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    monkeypatch.setattr(reshard, "reshard", die)
    with pytest.raises(errors.BinlogFolderError, match="failed with status -9"):
        lock_shard_folders(str(folder), 2)


def test_a_start_without_a_reshard_loads_no_core(folder: Path) -> None:
    """Neither the C core nor the progress bar."""
    lock_shard_folders(str(folder), 2).close()
    script = (
        "import sys; from beanstalkd_py.server.parent.shard_folders import lock_shard_folders;"
        "taken = lock_shard_folders(sys.argv[1], 2);"
        "print([name for name in ('beanstalkd_py.core._core', 'click') if name in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "[]\n"


# --- the command --------------------------------------------------------------------------------


def refusal_after_lines(status: int, *args: str | Path) -> str:
    """Return the last line on stderr."""
    done = run(*args)
    assert done.returncode == status, done
    return done.stderr.splitlines()[-1]


@pytest.mark.costly
def test_the_reshard_command_and_back(folder: Path) -> None:
    fill(folder)
    before = contents([folder])
    done = run("binlog", "reshard", "--workers", "4", "--colocate", ":", "-s", "8192", folder)
    assert done.returncode == 0
    assert f"resharded for 4 workers by ':'; jobs: {len(before)}" in done.stderr
    assert divided_as(folder, Layout(4, b":")) == before
    assert run("binlog", "reshard", "--workers", "1", folder).returncode == 0
    assert divided_as(folder, WHOLE) == before
    assert "nothing to do" in run("binlog", "reshard", "--workers", "1", folder).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--workers", "0", "x"], ["--workers", "the minimum is 1"]),
        (["--workers", "256", "x"], ["--workers", "the maximum is 255"]),
        (["--workers", "two", "x"], ["--workers", "'two'"]),
        (["--workers"], ["--workers", "requires a value"]),
        (["x"], ["--workers", "missing"]),
        (["--workers", "2"], ["FOLDER"]),
        (["--workers", "2", "-s", "0", "x"], ["-s", "the minimum is 1"]),
        (["--workers", "2", "--no-such", "x"], ["--no-such", "binlog reshard --help"]),
        (["--workers", "2", "x", "y"], ["y"]),
    ],
)
def test_a_usage_error_is_one_line(args: list[str], words: list[str]) -> None:
    line = refusal(TOOL_USAGE, "binlog", "reshard", *args)
    assert all(word in line for word in words)


def test_an_unknown_command_of_the_group_is_a_usage_error() -> None:
    assert "no-such" in refusal(TOOL_USAGE, "binlog", "no-such")


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    assert "does not exist" in refusal(
        TOOL_USAGE, "binlog", "reshard", "--workers", "2", tmp_path / "x"
    )


# --- progress -----------------------------------------------------------------------------------


def test_a_terminal_gets_a_progress_bar(folder: Path) -> None:
    fill(folder)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "beanstalkd_py", "binlog", "reshard", "--workers", "3"]
    with subprocess.Popen([*command, str(folder)], stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # the terminal's hangup
                break
            shown += data
        assert process.wait(20) == 0
    os.close(ours)
    assert b"resharding  [" in shown and b"100%" in shown


def test_a_log_gets_a_progress_line_every_few_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress.LOGGER, "propagate", True)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with log_lines(30, "resharding", "jobs", 400) as advance:
        for done in range(0, 401, 100):
            advance(done)
            now[0] += 2.0
    assert caplog.messages == [
        "resharding: 200 of 400 jobs written (50%)",
        "resharding: 400 of 400 jobs written (100%)",
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_million_jobs_take_less_than_thirty_seconds(tmp_path: Path) -> None:
    """With syncs, on the real disk; bodies of 100 bytes in 1000 tubes."""
    put = b"put 7 0 60 100\r\n" + b"x" * 100 + b"\r\n"
    with Rig(tmp_path, file_size=10485760, sync_interval_ns=-1, now=read_clocks()) as rig:
        client = rig.client()
        for tube in range(1000):
            client.send(b"use tube-%d\r\n" % tube + put * 1000)
            client.read()
        rig.stop()
    begun = time.monotonic()
    taken = lock_shard_folders(str(tmp_path), 4)
    seconds = time.monotonic() - begun
    taken.close()
    print(f"1 -> 4 workers, a million jobs: {seconds:.1f} s")
    assert seconds < 30
    begun = time.monotonic()
    lock_shard_folders(str(tmp_path), 1).close()
    print(f"4 -> 1 workers, a million jobs: {time.monotonic() - begun:.1f} s")
    with Rig(tmp_path, file_size=10485760, now=read_clocks()) as rig:
        assert rig.counters.ready == 1_000_000
