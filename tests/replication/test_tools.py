"""`cluster` on a replicated queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cli.operator import Operator
from replication.nats_cluster import (
    NatsCluster,
    cluster_status,
    replicated_servers,
)

from beanstalkd_py.replication import cluster_status as status_module
from beanstalkd_py.replication.log import Log


def test_a_server_that_is_gone_is_forgotten(
    nats: NatsCluster, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, operator = f"{nats.url}/forget", Operator("")
    with replicated_servers(nats, "forget", memory) as (first, second):
        address = f"127.0.0.1:{second.port}"
        cluster_status(target)
        assert "runs, because it reported" in operator.fail(2, "cluster", "forget", target, address)
        second.kill()
        assert "runs, because it reported" in operator.fail(2, "cluster", "forget", target, address)
        monkeypatch.setattr(status_module, "STALE_S", 0.0)
        found = operator.fail(2, "cluster", "forget", target, "127.0.0.1:1")
        known = ", ".join(sorted([f"127.0.0.1:{first.port}", address]))
        assert found.endswith(f"no server 127.0.0.1:1 has reported; known servers: {known}")
        with monkeypatch.context() as patches:
            patches.setattr(Log, "delete", after_a_report(Log.delete))
            found = operator.fail(2, "cluster", "forget", target, address)
        assert "it reported right now" in found
        operator.do("cluster", "forget", target, address)
        shown = operator.try_("cluster", "status", "--json", target)
        assert [one["address"] for one in shown.json["servers"]] == [f"127.0.0.1:{first.port}"]
        second.start()
        cluster_status(target)


def after_a_report(delete: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Let the server report before its report is removed."""

    async def report_and_delete(log: Log, key: str, revision: int) -> None:
        record = await log.get(key)
        assert record is not None
        await log.report(key, record.value)
        await delete(log, key, revision)

    return report_and_delete
