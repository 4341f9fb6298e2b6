"""Fixtures: certificate files."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from server.tls.tls_servers import Files


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    return Files(tmp_path, authority)
