"""Retries without pauses, because a log in memory is available again at once."""

from __future__ import annotations

import pytest

from beanstalkd_py.replication import node, stream_writer


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (node, stream_writer):
        monkeypatch.setattr(module, "RETRY_S", 0.0)
