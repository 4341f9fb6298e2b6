"""Streams and buckets that lose messages are refused, with the names of their settings."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import nats
import pytest
from nats.js.api import DiscardPolicy, KeyValueConfig, RetentionPolicy, StorageType, StreamConfig
from replication.servers.nats_cluster import NatsCluster

from beanstalkd_py.errors import ReplicationError
from beanstalkd_py.replication.log import Log, LogOptions
from beanstalkd_py.replication.target import parse_target

pytestmark = pytest.mark.costly
STREAM: dict[str, dict[str, Any]] = {
    "max_age": {"max_age": 3600.0},
    "num_replicas": {"num_replicas": 1},
    "retention": {"retention": RetentionPolicy.INTEREST},
    "discard": {"discard": DiscardPolicy.OLD},
    "storage": {"storage": StorageType.MEMORY},
    "max_msgs": {"max_msgs": 1000},
    "max_msgs_per_subject": {"max_msgs_per_subject": 1000},
    "deny_delete": {"deny_delete": False},
}
BUCKET: dict[str, dict[str, Any]] = {
    "max_age": {"ttl": 3600.0},
    "num_replicas": {"replicas": 1},
    "allow_direct": {"direct": True},
    "max_bytes": {"max_bytes": 1 << 20},
}


@pytest.mark.parametrize("is_bucket", [False, True])
def test_settings_that_lose_messages_are_refused(nats: NatsCluster, is_bucket: bool) -> None:
    asyncio.run(refused(nats, is_bucket))


async def refused(cluster: NatsCluster, is_bucket: bool) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{cluster.ports[0]}")
    jetstream = client.jetstream()
    for setting, values in (BUCKET if is_bucket else STREAM).items():
        target = parse_target(f"{cluster.url}/{setting}-{is_bucket:d}")
        if is_bucket:
            good = {"replicas": 3, "storage": StorageType.FILE, "history": 1}
            config = KeyValueConfig(bucket=target.bucket, **{**good, **values})
            await jetstream.create_key_value(config)
        else:
            stream = {
                "num_replicas": 3,
                "discard": DiscardPolicy.NEW,
                "storage": StorageType.FILE,
                "deny_delete": True,
            }
            names = {"name": target.stream(0), "subjects": [target.subject(0)]}
            await jetstream.add_stream(StreamConfig(**{**names, **stream, **values}))
        log = await Log.connect(target, LogOptions())
        with pytest.raises(ReplicationError, match=rf"can lose jobs: {re.escape(setting)};"):
            await log.create(1)
        await log.close()
    await client.close()
