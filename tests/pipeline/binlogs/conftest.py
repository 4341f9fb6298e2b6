"""Folders to ship to: on this machine, in an object store, and on a file system of fsspec."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.binlogs.object_store import BUCKET, object_store


@pytest.fixture(scope="session")
def store() -> Iterator[str]:
    """The URL of a bucket."""
    with object_store():
        yield f"s3://{BUCKET}"


@pytest.fixture(params=["path", "s3", "fsspec"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder for binlogs of all hosts."""
    if request.param == "s3":
        return f"{request.getfixturevalue('store')}/{uuid.uuid4().hex}"
    folder = tmp_path / "target"
    return str(folder) if request.param == "path" else f"local://{folder}"
