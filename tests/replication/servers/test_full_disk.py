"""The disk of one replicated server is full, or the account of NATS."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from processes import eventually
from replication.servers.nats_cluster import (
    LEASE_S,
    READY_S,
    NatsCluster,
    cluster_status,
    replicated_servers,
    restarting,
    single_nats,
    wait_for_primary,
)
from small_disk import small_disk
from wire import Client, NoReplyError

from beanstalkd_py.replication.cluster_status import STALE_S

OPTIONS = "--workers", "1", "-s", "262144"
BODY = b"x" * 10_000
pytestmark = pytest.mark.costly


def put_many(client: Client, most: int) -> list[int]:
    """Put jobs until one is refused, or `most`."""
    jobs: list[int] = []
    while len(jobs) < most:
        reply = client.ask(b"put 0 0 100 %d\r\n%b\r\n" % (len(BODY), BODY), READY_S)
        if reply == b"OUT_OF_MEMORY\r\n":
            break
        assert reply.startswith(b"INSERTED "), reply
        jobs.append(int(reply.split()[1]))
    return jobs


def behind(target: str) -> int:
    """Return the number of messages that the standby lacks."""
    (found,) = (one for one in cluster_status(target)["servers"] if not one["is_primary"])
    return int(found["behind"])


def test_a_primary_with_a_full_disk_refuses_only_puts(nats: NatsCluster, memory: Path) -> None:
    name = "full-primary"
    with (
        small_disk(memory / f"{name}-0"),
        replicated_servers(nats, name, memory, 2, *OPTIONS) as (first, second),
    ):
        with first.running.connect() as client:
            jobs = put_many(client, 1000)
            assert 100 < len(jobs) < 1000
            ended = set(jobs[::2])
            for job in ended:
                assert client.ask(b"delete %d\r\n" % job, READY_S) == b"DELETED\r\n"
        first.kill()
        assert wait_for_primary([second]) is second
        with second.running.connect() as client:
            assert len(put_many(client, 500)) == 500
            for job in jobs:
                exists = client.ask(b"peek %d\r\n" % job, READY_S).startswith(b"FOUND ")
                assert exists == (job not in ended)


def test_a_standby_with_a_full_disk_does_not_stop_the_primary(
    nats: NatsCluster, memory: Path
) -> None:
    """Its service manager starts it again, and it stands by as soon as there is space."""
    name = "full-standby"
    with (
        small_disk(memory / f"{name}-1"),
        replicated_servers(nats, name, memory, 2, *OPTIONS) as servers,
        restarting(servers),
    ):
        (first, second), target = servers, f"{nats.url}/{name}"
        with first.running.connect() as client:
            jobs = put_many(client, 1000)
            assert len(jobs) == 1000
            full = f"{second.folder}/binlog."
            assert eventually(lambda: f"cannot use {full}" in second.stderr(), READY_S)
            assert first.is_primary()
            left = jobs.pop()
            for job in jobs:
                assert client.ask(b"delete %d\r\n" % job, READY_S) == b"DELETED\r\n"
        assert eventually(lambda: behind(target) == 0, STALE_S + READY_S)
        first.kill()
        assert wait_for_primary([second]) is second
        with second.running.connect() as client:
            assert client.ask(b"peek %d\r\n" % left, READY_S).startswith(b"FOUND ")
            assert client.ask(b"peek %d\r\n" % jobs[0], READY_S) == b"NOT_FOUND\r\n"
            assert len(put_many(client, 10)) == 10


def test_a_full_account_of_nats_stops_the_queue_until_it_has_space(memory: Path) -> None:
    """Nobody can renew or take the lease meanwhile. Servers wait, and need no help afterwards."""
    account = "jetstream {{ max_file: {0} }}, users: [{{ user: q, password: q }}]"
    settings = f"accounts {{{{ Q {{{{ {account} }}}} }}}}\nno_auth_user: q\n"
    options = *OPTIONS, "--replicate-copies=1"
    with (
        single_nats(memory, settings.format(300_000)) as cluster,
        replicated_servers(cluster, "account", memory, 2, *options) as servers,
        restarting(servers),
    ):
        jobs = []
        # Small ones, because a renewal of the lease needs less space than a large one.
        with servers[0].running.connect() as client, contextlib.suppress(NoReplyError):
            while len(jobs) < 2000:
                jobs.append(int(client.ask(b"put 0 0 100 1\r\nx\r\n", LEASE_S).split()[1]))
        assert 100 < len(jobs) < 2000
        assert eventually(lambda: any("the lease has ended" in one for one in servers[0].logs))
        assert eventually(lambda: servers[0].running.exit_status is None)
        pids = [one.running.pid for one in servers]
        time.sleep(2 * LEASE_S)
        assert [one.running.pid for one in servers] == pids, servers[0].stderr()
        (nats,) = cluster.servers
        nats.kill()
        text = nats.config.read_text()
        nats.config.write_text(text.replace("max_file: 300000", "max_file: 30000000"))
        nats.start()
        primary = wait_for_primary(servers)
        with primary.running.connect() as client:
            assert len(put_many(client, 100)) == 100
            for job in jobs:
                assert client.ask(b"delete %d\r\n" % job, READY_S) == b"DELETED\r\n"
