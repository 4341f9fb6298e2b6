"""Replace syncs by no-ops; tests of power cuts remove the unsynced bytes themselves."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quick_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs; the kernel keeps all written bytes for later readers."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
