"""What a primary reports about its standbys and about bytes that are not stored yet."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.cluster_status import ServerStatus
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.replicator.process import Replicator, Waiting


def test_lag_and_waiting_bytes(tmp_path: Path) -> None:
    for number, size in ((1, 1000), (2, 300), (3, 5000)):
        (tmp_path / f"binlog.{number}").write_bytes(bytes(size))
    waiting = Waiting(time.monotonic() - 2, BinlogPosition(1, 900), BinlogPosition(3, 50))
    primary: Any = SimpleNamespace(
        _node=SimpleNamespace(behind=0, unavailable=""),
        _lease=SimpleNamespace(holder=None, epoch=3, failovers=2),
        _config=SimpleNamespace(options=ServeOptions(replicate_address="a:1")),
        _standbys=[
            ServerStatus("b:1", False, behind=5, time_s=100.0, complete_s=88.0),
            ServerStatus("c:1", False, behind=0, time_s=100.0, complete_s=20.0),
        ],
        _behind_bytes=700,
        _waiting={0: waiting},
        _folders=[tmp_path],
        _unavailable_s=0.0,
    )
    status = Replicator._status(primary)
    assert (status.primary, status.epoch, status.standbys) == ("a:1", 3, 2)
    assert (status.behind, status.behind_s, status.behind_bytes) == (5, 12.0, 700)
    assert status.waiting_bytes == 100 + 300 + 50
    assert 2 <= status.waiting_s < 60
