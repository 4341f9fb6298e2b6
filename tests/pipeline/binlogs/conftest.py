"""Folders to ship to: on this machine, in an object store, and on a file system of fsspec."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


@pytest.fixture(params=["path", "s3", "fsspec"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder for binlogs of all hosts."""
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{uuid.uuid4().hex}"
    folder = tmp_path / "target"
    return str(folder) if request.param == "path" else f"local://{folder}"
