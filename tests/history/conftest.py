"""Syncs cost nothing here: what a power cut takes is taken by hand, where a test is about that."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quick_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps what it was given, so a process that reads it again misses nothing."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
