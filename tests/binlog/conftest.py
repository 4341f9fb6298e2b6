"""A folder for binlogs, on a file system that syncs for nothing.

These tests count syncs and make them fail; what a disk does with them is not their matter, and a
thousand real ones would take minutes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalkd_py.core import fault_injection

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty binlog folder."""
    parent = MEMORY if MEMORY.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="binlog-test-", dir=parent))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """Faults belong to the process: none outlives its test."""
    fault_injection.heal()
    yield
    fault_injection.heal()
