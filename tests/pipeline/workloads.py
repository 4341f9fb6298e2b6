"""Runs of tools/workload for tests in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL = Path(__file__).resolve().parents[2] / "tools" / "workload"
ALWAYS = ("--seed=3", "--profile=failing", "--tubes=6", "--max-job-size=2K")


@dataclass(frozen=True)
class Run:
    binlog: Path
    log: Path
    history: Path


@dataclass(frozen=True)
class Event:
    """An event of the log between two wall times in nanoseconds."""

    kind: str
    sent_ns: int
    at_ns: int
    priority: int
    delay: int


def made(top: Path, runs: dict[str, tuple[str, ...]]) -> dict[str, Run]:
    """Make runs with these options concurrently, because they mostly wait."""
    top.mkdir(exist_ok=True)
    found: dict[str, Run] = {}
    processes = []
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONSAFEPATH"}
    for name, options in runs.items():
        run = found[name] = Run(top / name, top / f"{name}.jsonl", top / f"{name}-history")
        given = [option.replace("HISTORY", str(run.history)) for option in options]
        command = [sys.executable, str(TOOL), *ALWAYS, *given]
        command += [f"--binlog-dir={run.binlog}", f"--log={run.log}"]
        processes.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in processes:
        _, actual = process.communicate(timeout=400)
        assert process.returncode == 0, actual
    return found


def lines(run: Run) -> dict[int, list[dict[str, Any]]]:
    jobs: dict[int, list[dict[str, Any]]] = {}
    for text in run.log.read_text().splitlines()[1:-1]:
        line = json.loads(text)
        jobs.setdefault(line["id"], []).append(line)
    return jobs


def events(of_job: list[dict[str, Any]]) -> list[Event]:
    """Return the events of one job."""
    return [
        Event(line["event"], line["sent_ns"], line["at_ns"], line["pri"], line["delay"])
        for line in of_job
    ]
