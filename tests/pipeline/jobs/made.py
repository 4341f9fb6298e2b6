"""Binlogs and histories made by tools/workload."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
SAME = ("--jobs=600", "--seed=11", "--profile=failing", "--tubes=5", "--max-job-size=4K")
RUNS: Mapping[str, tuple[str, ...]] = {
    "ours": ("--binlog-size=40K",),
    "history": ("--binlog-size=40K", "--workers=2", "--truncate=1"),
    "c": ("--server=c", "--binlog-size=40K"),
    "removed": ("--binlog-size=24K", "--no-keep-files"),
}


@dataclass(frozen=True)
class Made:
    log: Path
    binlog: Path


def made(name: str) -> Made:
    """Return a run. All are made once and concurrently, because they mostly wait."""
    return _all()[name]


@functools.cache
def _all() -> dict[str, Made]:
    memory = Path("/dev/shm")
    top = Path(tempfile.mkdtemp(prefix="pipeline-made-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    runs = {name: Made(top / f"{name}.jsonl", top / name) for name in RUNS}
    # A script finds its parts beside itself, which a safe path forbids.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    processes = []
    for name, more in RUNS.items():
        history = [f"--history={top / 'store'}"] if name == "history" else []
        to = [f"--binlog-dir={runs[name].binlog}", f"--log={runs[name].log}"]
        command = [sys.executable, str(TOOLS / "workload"), *SAME, *more, *to, *history]
        processes.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in processes:
        _, actual = process.communicate(timeout=120)
        assert process.returncode == 0, actual
    return runs


def log_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `workloadlib` of tools/ importable."""
    monkeypatch.syspath_prepend(str(TOOLS))
