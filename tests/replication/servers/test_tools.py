"""`cluster`, `doctor` and metrics of a replicated queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
from cli.operator import Operator
from processes import eventually
from replication.servers.nats_cluster import (
    NatsCluster,
    cluster_status,
    replicated_servers,
)
from server.metrics.scrape import Metrics, get
from servers import free_port

from beanstalkd_py.replication import cluster_status as status_module
from beanstalkd_py.replication import nats_connection
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


def examined(config: Path) -> dict[str, tuple[str, str, str]]:
    """Return verdict, state and advice of the checks of the queue."""
    result = Operator(f"127.0.0.1:{free_port()}").try_("doctor", "--json", "--config", str(config))
    return {
        one["check"]: (one["verdict"], one["found"], one["advice"])
        for one in result.json
        if one["check"] in ("replicated log", "standbys")
    }


async def change_stream(url: str, name: str, **settings: Any) -> None:
    client = await nats_client.connect(url)
    try:
        found = (await client.jetstream().stream_info(name)).config
        await client.jetstream().update_stream(found.evolve(**settings))
    finally:
        await client.close()


def test_doctor_examines_the_queue(nats: NatsCluster, memory: Path) -> None:
    target, config = f"{nats.url}/doctor", memory / "doctor.toml"
    settings = f'workers = 1\nreplicate = "{target}"\n'
    with replicated_servers(nats, "doctor", memory) as (first, _):
        config.write_text(f'{settings}binlog-dir = "{first.folder}"\n')
        cluster_status(target)
        found = examined(config)
        assert found["replicated log"][0] == found["standbys"][0] == "ok", found
        assert f"primary 127.0.0.1:{first.port}, epoch " in found["replicated log"][1]
        assert "1 standby, at most " in found["standbys"][1]
        url = f"nats://127.0.0.1:{nats.ports[0]}"
        asyncio.run(change_stream(url, "beanstalkd-doctor-0", max_msgs=10**9))
        verdict, text, advice = examined(config)["replicated log"]
        assert verdict == "problem" and "can lose jobs: max_msgs" in text and "correct" in advice
        asyncio.run(change_stream(url, "beanstalkd-doctor-0", max_msgs=-1, num_replicas=1))
        assert "can lose jobs: num_replicas" in examined(config)["replicated log"][1]
        config.write_text(config.read_text() + "replicate-copies = 1\n")
        verdict, text, advice = examined(config)["replicated log"]
        assert verdict == "warning" and "1 copy" in text and "--replicas 3" in advice
    config.write_text(f'binlog-dir = "{first.folder}"\nworkers = 1\n')
    verdict, text, advice = examined(config)["replicated log"]
    assert verdict == "unknown" and "replica.json" in text


@pytest.mark.costly
def test_metrics_of_a_primary(nats: NatsCluster, memory: Path) -> None:
    ports = [free_port(), free_port()]

    def options(number: int) -> list[str]:
        return [f"--metrics=127.0.0.1:{ports[number]}", "--replicate-lease=30s"]

    def value(name: str) -> float:
        return Metrics(get(ports[0], "/metrics").text).sum(f"beanstalkd_{name}")

    with replicated_servers(nats, "metrics", memory, each=options) as (first, second):
        epoch = cluster_status(f"{nats.url}/metrics")["epoch"]
        assert eventually(lambda: value("replication_epoch") == epoch > 0)
        assert value("replication_failovers_total") == 0
        assert eventually(lambda: value("standbys") == 1, 15)
        assert value("standby_behind_messages") < 1000
        # A slow renewal of the lease counts, too.
        before_s = value("replicated_log_unavailable_seconds_total")
        first.relays.cut()
        with first.running.connect() as client:
            client.send(b"put 0 0 100 4\r\nbody\r\n")
            assert eventually(lambda: value("replicated_log_wait_seconds") > 1, 15)
            assert 84 < value("replicated_log_wait_bytes") < 500
            assert eventually(
                lambda: value("replicated_log_unavailable_seconds_total") > before_s, 15
            )
            assert value("replicated_log_up") == 0
            first.relays.mend()
            assert client.reply(15) == b"INSERTED 1\r\n"
        assert eventually(lambda: value("replicated_log_up") == 1, 15), first.stderr()
        second.relays.cut()
        with first.running.connect() as client:
            for _ in range(50):
                client.put(bytes(10_000))
        assert eventually(lambda: 500_000 < value("standby_behind_bytes") < 600_000, 12)
        second.relays.mend()
        assert eventually(lambda: value("standby_behind_bytes") == 0, 25)
        assert eventually(lambda: value("replicated_log_wait_seconds") == 0, 15)
        assert value("replicated_log_wait_bytes") == 0


def test_a_standby_has_metrics_and_refuses_control(nats: NatsCluster, memory: Path) -> None:
    ports = [free_port(), free_port()]

    def options(number: int) -> list[str]:
        return [f"--metrics=127.0.0.1:{ports[number]}"]

    def role(number: int) -> float:
        metrics = Metrics(get(ports[number], "/metrics").text)
        assert metrics.sum("beanstalkd_replicated_log_up") == 1
        return metrics.sum("beanstalkd_replication_primary")

    with replicated_servers(nats, "observed", memory, each=options) as (first, second):
        assert eventually(lambda: get(ports[1], "/-/ready").status == 200)
        assert (role(0), role(1)) == (1, 0)
        text = Operator(f"127.0.0.1:{second.port}").fail(1, "workers")
        assert f"this server is a standby; ask the primary, 127.0.0.1:{first.port}" in text
        first.stop()
        assert eventually(lambda: role(1) == 1, 10)
        assert Operator(f"127.0.0.1:{second.port}").do("workers", "--json").json


def test_without_nats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_connection, "CONNECT_S", 1)
    config, server = tmp_path / "server.toml", f"127.0.0.1:{free_port()}"
    target = f"nats://{server}/jobs"
    config.write_text(f'binlog-dir = "{tmp_path}"\nworkers = 1\nreplicate = "{target}"\n')
    found = examined(config)
    assert set(found) == {"replicated log"}
    verdict, text, advice = found["replicated log"]
    assert verdict == "problem" and "start NATS" in advice
    assert f"cannot connect to {server}: " in text and "Connect call failed" in text
    assert text in Operator("").fail(2, "cluster", "status", target)
