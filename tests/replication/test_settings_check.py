"""Changed settings of the streams are logged while a server runs."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from beanstalkd_py.errors import ReplicationError
from beanstalkd_py.replication.log import LogUnavailableError
from beanstalkd_py.server.replicator import process


def test_each_fault_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "CHECK_S", 0.0)
    results: list[Exception | None] = [
        None,
        ReplicationError("stream a"),
        LogUnavailableError("no answer"),
        ReplicationError("stream a"),
        ReplicationError("stream b"),
        None,
        ReplicationError("stream b"),
    ]

    async def check_settings(workers: int) -> None:
        assert workers == 2
        if not results:
            raise EOFError
        if error := results.pop(0):
            raise error

    log = cast(Any, SimpleNamespace(check_settings=check_settings))
    with caplog.at_level(logging.ERROR), pytest.raises(EOFError):
        asyncio.run(process.watch_settings(log, 2))
    assert [one.message for one in caplog.records] == ["stream a", "stream b", "stream b"]
