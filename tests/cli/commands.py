"""Running command lines that end by themselves, and what a refusal looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ERROR = 1
USAGE = 5
FOLDER = 10
BIND = 111


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """A command line that ends by itself."""
    command = [sys.executable, "-m", "beanstalkd_py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def refusal(status: int, *args: str | Path) -> str:
    """The one line on stderr of a start that must fail with this status."""
    done = run(*args)
    assert done.returncode == status, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("beanstalkd-py: ")
    return lines[0]
