from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder in memory, where syncs cost no time."""
    path = Path(tempfile.mkdtemp(prefix="power-cut-", dir=MEMORY))
    yield path
    shutil.rmtree(path)
