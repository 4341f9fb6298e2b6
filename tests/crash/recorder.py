"""Recordings of the file operations of processes, which disk_images.py plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from preloading import build_library, preload

TESTS = Path(__file__).parents[1]
SOURCE = Path(__file__).with_name("disk_recorder.c")


def build_recorder(folder: Path) -> Path:
    """Build the library that records file operations."""
    return build_library(SOURCE, folder)


def record_below(home: Path, library: Path, patch: pytest.MonkeyPatch) -> None:
    """Let new processes record what they do below `home / "disk"`.

    The recording is `home / "recording"`. The file `home / "control"` holds or fails their syncs.
    """
    preload(library, patch)
    patch.setenv("RECORD_ROOT", str(home / "disk"))
    patch.setenv("RECORD_LOG", str(home / "recording"))
    patch.setenv("RECORD_CONTROL", str(home / "control"))


def recorded_script(library: Path, home: Path, script: str, *words: str) -> bytes:
    """Run a script of the tests and return its recording."""
    with pytest.MonkeyPatch.context() as patch:
        record_below(home, library, patch)
        command = [sys.executable, str(TESTS / script), *words]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        subprocess.run(command, env=environment, timeout=60, check=True)
    return (home / "recording").read_bytes()
