"""Folders of backups: on this machine, and in an object store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.binlogs.object_store import BUCKET, object_store

from beanstalkd_py.backup.target import Target


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URL of a bucket."""
    with object_store():
        yield f"s3://{BUCKET}"


@pytest.fixture
def target(folder: Path) -> Iterator[Target]:
    path = folder.with_name(folder.name + ".backups")
    yield Target(str(path))
    shutil.rmtree(path, ignore_errors=True)
