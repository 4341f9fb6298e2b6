"""The folder of backups."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalkd_py.backup.target import Target


@pytest.fixture
def target(folder: Path) -> Iterator[Target]:
    path = folder.with_name(folder.name + ".backups")
    yield Target(str(path))
    shutil.rmtree(path, ignore_errors=True)
