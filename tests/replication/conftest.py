"""Short times for servers on a log in memory."""

from __future__ import annotations

import pytest

from beanstalkd_py.replication import lease, node, stream_writer


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is available again at once."""
    for module in (node, stream_writer):
        monkeypatch.setattr(module, "RETRY_S", 0.0)


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> None:
    monkeypatch.setattr(lease, "MARGIN_S", 0.0)
    # Standbys that never pause would leave no time to the primary.
    monkeypatch.setattr(node, "POLL_S", 0.002)
    for name in ("OBSERVE_S", "SAVE_S", "SHORT_S"):
        monkeypatch.setattr(node, name, 0.0)
