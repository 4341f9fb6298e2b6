"""What a console shows of a replicated queue."""

from __future__ import annotations

import pytest
from console.consoles import console
from processes import eventually
from replication.servers.nats_cluster import memory_folder, nats_cluster, replicated_servers

pytestmark = pytest.mark.costly


def test_the_status_of_a_primary() -> None:
    with (
        memory_folder() as memory,
        nats_cluster(memory) as nats,
        replicated_servers(nats, "console", memory, 2) as servers,
        console(servers[0].running) as running,
    ):
        visitor = running.visitor()
        assert eventually(
            lambda: (visitor.ok("s/0/replication")["replication"] or {}).get("standbys") == 1, 20
        )
        status = visitor.ok("s/0/replication")["replication"]
        assert set(status) == {
            *("primary", "epoch", "failovers", "standbys", "behind", "behind-s", "behind-bytes"),
            *("unavailable", "unavailable-s", "waiting-s", "waiting-bytes"),
        }
        assert status["epoch"] >= 1
        assert status["unavailable"] == ""
