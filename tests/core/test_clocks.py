"""Both clocks, read as one moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from preloading import build_library, preload

MILLISECOND = 1_000_000
READ = """
from beanstalkd_py.core.clocks import read_clocks
for _ in range(60):
    now = read_clocks()
    print(now.wall - now.mono)
"""


def test_an_interruption_between_the_clocks_does_not_separate_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the deadlines in a binlog, and the times that follow from them, would be late."""
    preload(build_library(Path(__file__).with_name("slow_clock.c"), tmp_path), monkeypatch)
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    differences = [int(line) for line in read.stdout.splitlines()]
    assert len(differences) == 60
    assert max(differences) - min(differences) < MILLISECOND
