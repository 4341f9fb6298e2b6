"""Run command lines that exit by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ERROR = 1
USAGE = 5
FOLDER = 10
BIND = 111


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beanstalkd_py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def refusal(status: int, *args: str | Path) -> str:
    """Run a start that must fail with this status; return its line on stderr."""
    done = run(*args)
    assert done.returncode == status, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("beanstalkd-py: ")
    return lines[0]
