"""A small file system of its own for a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path, megabytes: int = 4) -> Iterator[Path]:
    """Mount one; the test never skips, because it proves a guarantee."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(
            "this test needs a small file system of its own, and may not mount one: "
            f"{done.stderr.strip()}. Run it as root, or under `unshare --map-root-user --mount`."
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
