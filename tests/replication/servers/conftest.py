"""NATS servers for a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from replication.servers.nats_cluster import NatsCluster, memory_folder, nats_cluster


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def nats(memory: Path) -> Iterator[NatsCluster]:
    with nats_cluster(memory) as cluster:
        yield cluster
