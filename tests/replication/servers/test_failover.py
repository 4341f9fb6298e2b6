"""Two servers and three nats-servers: a standby takes over with every acknowledged job."""

from __future__ import annotations

import os
import signal
import ssl
import time
from pathlib import Path

import pytest
import trustme
from cli.operator import Operator
from processes import eventually
from replication.servers.nats_cluster import (
    LEASE_S,
    READY_S,
    NatsCluster,
    ReplicatedServer,
    answers,
    cluster_status,
    replicated_servers,
    restarting,
    wait_for_primary,
)
from replication.servers.relay import Relays
from server.tls.tls_servers import Both, Files, ask, can_connect
from servers import free_port, free_ports
from wire import Client

from beanstalkd_py.replication.replica_state import load_replica

PUT = b"put 0 0 100 4\r\nbody\r\n"


def test_a_standby_forwards_and_takes_over(nats: NatsCluster, memory: Path) -> None:
    with replicated_servers(nats, "forward", memory) as (first, second):
        assert answers(first.port, PUT) == b"INSERTED 1\r\n"
        assert answers(second.port, PUT) == b"INSERTED 2\r\n"
        status = cluster_status(f"{nats.url}/forward")
        assert status["primary"] == f"127.0.0.1:{first.port}"
        assert f"primary of epoch {status['epoch']}" in first.stderr()
        roles = {one["address"]: one["is_primary"] for one in status["servers"]}
        assert roles == {f"127.0.0.1:{one.port}": one is first for one in (first, second)}
        first.kill()
        killed = time.monotonic()
        assert answers(second.port, b"stats-job 1\r\n").startswith(b"OK")
        # tools/bench failover measures it; here other tests use the processors, too.
        assert LEASE_S - 2 < time.monotonic() - killed < LEASE_S + 4
        assert answers(second.port, PUT) == b"INSERTED 3\r\n"
        first.start()
        first.wait_until("standing by")
        assert answers(first.port, b"stats-job 3\r\n").startswith(b"OK")
        # A stop ends the lease at once.
        stopped = time.monotonic()
        assert second.stop() == 0
        assert answers(first.port, b"stats-job 3\r\n").startswith(b"OK")
        assert time.monotonic() - stopped < 3
        assert wait_for_primary([first, second]) is first


def watch_only(client: Client, tube: bytes) -> None:
    watched = client.ask(b"list-tubes-watched\r\n").split(b"\r\n")[1].split(b"\n- ")[1:]
    client.ask(b"watch %b\r\n" % tube)
    for other in set(watched) - {tube}:
        client.ask(b"ignore %b\r\n" % other.strip())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_planned_failover_runs_no_job_twice(
    nats: NatsCluster, memory: Path, workers: str
) -> None:
    """A client that has reserved jobs ends them on the next primary; nobody else gets them."""
    target = f"{nats.url}/planned-{workers}"
    tubes = [b"a", b"b", b"c", b"d"]
    options = "--workers", workers
    with (
        replicated_servers(nats, f"planned-{workers}", memory, 2, *options) as servers,
        restarting(servers),
    ):
        primary, standby = servers
        holder = primary.running.connect()
        watch_only(holder, b"kept")
        holder.ask(b"use kept\r\n")
        kept = holder.put(ttr=1000)
        holder.reserve()
        for _ in range(3):
            cluster_status(target)
            with primary.running.connect() as client:
                jobs = {}
                for tube in tubes:
                    watch_only(client, tube)
                    client.ask(b"use %b\r\n" % tube)
                    assert client.put() and client.put()
                    jobs[tube] = client.reserve()
                shown = Operator("").do("cluster", "failover", target)
                assert shown.lines[0] == f"primary: 127.0.0.1:{standby.port}"
            primary, standby = standby, primary
            with primary.running.connect() as client:
                assert client.stats()["current-jobs-reserved"] == str(len(tubes) + 1)
                assert client.job_stats(kept)["state"] == "reserved", "over several failovers"
                rows = Operator(f"127.0.0.1:{primary.port}").do("conns", "--json").json
                assert [row["holds"] for row in rows] == [0], "nobody holds these jobs"
                for tube, job in jobs.items():
                    watch_only(client, tube)
                    other = client.reserve()
                    assert other != job, "it is run twice"
                    assert client.ask(b"delete %d\r\n" % other) == b"DELETED\r\n"
                    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
                    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
            standby.wait_until("standing by")
        holder.close()


def test_a_replaced_worker_distrusts_its_files(nats: NatsCluster, memory: Path) -> None:
    """Its predecessor may have failed to sync them, so it copies those that are not known to be."""
    with replicated_servers(nats, "replaced", memory, 1, "--workers", "2") as (server,):
        operator = Operator(f"127.0.0.1:{server.port}")
        with server.running.connect() as client:
            for number in range(20):
                client.ask(b"use tube-%d\r\n" % number)
                client.put()
        rows = operator.do("workers", "--json").json
        for row in rows:
            folder = server.folder / f"shard-{row['worker']:03}"
            (used,) = (path for path in folder.glob("binlog.*") if b"tube-" in path.read_bytes())
            before = used.stat().st_ino
            os.kill(row["pid"], signal.SIGKILL)
            assert eventually(lambda path=used, old=before: path.stat().st_ino != old)
        assert eventually(lambda: answers(server.port, b"stats\r\n").startswith(b"OK"))
        with server.running.connect() as client:
            assert client.stats()["current-jobs-ready"] == "20"
            assert client.put()


def test_a_small_message_costs_little(nats: NatsCluster, memory: Path) -> None:
    with replicated_servers(nats, "jobs", memory, 1) as (server,):
        with server.running.connect() as client:
            for number in range(1, 500):
                assert client.ask(PUT) == b"INSERTED %d\r\n" % number
        server.stop()  # cuts preallocated space
        (stream,) = cluster_status(f"{nats.url}/jobs", 1, 1)["streams"]
        messages = stream["last"] - stream["first"] + 1
        assert messages >= 500
        assert stream["size"] - (server.folder / "binlog.1").stat().st_size <= 96 * messages


def test_a_restarted_primary_does_not_forward_to_itself(nats: NatsCluster, memory: Path) -> None:
    """The lease still has its address, from before the kill."""
    with replicated_servers(nats, "itself", memory, 1) as (server,):
        assert answers(server.port, PUT) == b"INSERTED 1\r\n"
        server.kill()
        server.start()
        server.wait_until("standing by")
        with Client(server.port, READY_S) as client:
            client.send(b"stats-job 1\r\n")
            time.sleep(1.0)
            assert max(map(open_files, processes_of(server.running.pid))) < 60
        assert answers(server.port, b"stats-job 1\r\n").startswith(b"OK")
        assert "copying again" not in server.stderr()


def processes_of(group: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if os.getpgid(pid) == group]


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def certificate_of(client: ssl.SSLSocket) -> bytes | None:
    return client.getpeercert(binary_form=True)


def test_tls_clients_reach_the_primary_and_the_next_one(nats: NatsCluster, memory: Path) -> None:
    authority = trustme.CA()
    folders = [memory / "tls-files-0", memory / "tls-files-1"]
    for folder in folders:
        folder.mkdir()
    files = [Files(folder, authority) for folder in folders]
    ports = free_ports(len(files))

    def options(number: int) -> list[str]:
        return [f"--tls-listen=127.0.0.1:{ports[number]}", *files[number].arguments]

    with replicated_servers(nats, "tls", memory, each=options) as servers:
        parts = zip(servers, ports, files, strict=True)
        first, second = (Both(server.running, *rest) for server, *rest in parts)
        assert eventually(lambda: can_connect(first), READY_S)
        with first.connect() as near, second.connect() as far:
            assert certificate_of(near) == certificate_of(far) == files[0].certificate()
            assert ask(far, PUT) == b"INSERTED 1\r\n"
            assert ask(near, b"stats-job 1\r\n").startswith(b"OK")
            files[1].renew()  # while that server stands by
            assert servers[0].stop() == 0
            assert far.recv(1) == b""
        assert eventually(lambda: can_connect(second), READY_S)
        with second.connect() as client:
            assert certificate_of(client) == files[1].certificate()
            assert ask(client, b"stats-job 1\r\n").startswith(b"OK")


def test_a_server_that_cannot_reach_nats_reports_it(tmp_path: Path) -> None:
    relays = Relays([free_port()])
    with relays.open():
        server = ReplicatedServer(relays, "nowhere", tmp_path / "nowhere")
        server.start()
        try:
            server.wait_until("the replicated log is not available: NATS: cannot connect to ")
        finally:
            assert server.stop() == 0


@pytest.mark.costly
def test_a_restart_reads_only_what_is_new(nats: NatsCluster, memory: Path) -> None:
    """Although the primary has removed files after it stored its last message."""
    options = ("-s", "4096")
    with replicated_servers(nats, "restart", memory, 1, *options) as (server,):
        with server.running.connect() as client:
            for number in range(1, 200):
                assert client.ask(PUT) == b"INSERTED %d\r\n" % number
                assert client.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
        assert not (server.folder / "binlog.1").exists()
        server.stop()
        replica = load_replica(server.folder)
        assert replica is not None and replica.shards[0].sequence >= 400
        server.start()
        assert answers(server.port, PUT).startswith(b"INSERTED")
        assert "copying again" not in server.stderr()
