"""The power of a standby is cut at any moment: from every disk image it becomes the primary."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from binlog.workload import Actor
from crash.disk_images import Disk, whole_records
from preloading import build_library, preload
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import replicated
from replication.standby_process import take_over
from replication.test_core import adopted, replies_to
from replication.test_node import stream_files

from beanstalkd_py.binlog.layout import binlog_files
from beanstalkd_py.replication.log import CONFIGURATION
from beanstalkd_py.replication.membership import Configuration
from beanstalkd_py.replication.replica_state import load_replica

TESTS = Path(__file__).parents[1]
CUTS = 40
IMAGES = 3
FOLDER = "binlog"


def recorded(library: Path, home: Path, cluster: MemoryCluster) -> bytes:
    """Run a standby and return the recording of its file operations."""
    (home / "disk" / FOLDER).mkdir(parents=True)
    messages = home / "messages"
    messages.write_bytes(pickle.dumps(cluster))
    with pytest.MonkeyPatch.context() as patch:
        preload(library, patch)
        patch.setenv("RECORD_ROOT", str(home / "disk"))
        patch.setenv("RECORD_LOG", str(home / "recording"))
        patch.setenv("RECORD_CONTROL", str(home / "control"))
        script = TESTS / "replication/standby_process.py"
        command = [sys.executable, str(script), str(messages), str(home / "disk" / FOLDER)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        subprocess.run(command, env=environment, timeout=60, check=True)
    return (home / "recording").read_bytes()


def with_messages(folder: Path) -> MemoryCluster:
    """Return a log with the binlog of a server that has removed files."""
    log = MemoryLog(MemoryCluster())
    actor = Actor("power cut", largest=1500)
    with replicated(folder, log) as (core, _):
        client = adopted(core)
        for _ in range(200):
            client.sendall(actor.next())
            assert actor.pending is not None
            actor.take(replies_to(actor.pending, core, client))
    cluster = log.cluster
    configuration = Configuration("identity", 1, is_complete=True)
    cluster.keys[CONFIGURATION] = json.dumps(asdict(configuration)).encode(), 1
    cluster.revision = 1
    return cluster


@pytest.mark.costly
@pytest.mark.usefixtures("short_times")
def test_a_standby_takes_over_from_every_image(folder: Path, tmp_path: Path) -> None:
    library = build_library(TESTS / "crash/disk_recorder.c", tmp_path)
    cluster = with_messages(folder)
    messages = cluster.streams[0].messages
    assert min(messages) > 1 and len(stream_files(cluster)) > 2
    recording = recorded(library, tmp_path, cluster)
    fenced = pickle.loads((tmp_path / "messages").read_bytes())
    dice = random.Random("standby")
    disk = Disk(tmp_path / "disk", [FOLDER])
    played = 0
    for at in sorted(dice.randrange(len(recording)) for _ in range(CUTS)):
        at = whole_records(recording, at)
        disk.play(recording[played:at])
        played = at
        for number in range(IMAGES):
            image = tmp_path / "image"
            disk.image(dice if number else None).write(image)
            replica = load_replica(image / FOLDER)
            # The last record is written after the fence.
            has_fence = replica is not None and any(
                one.sequence > cluster.streams[0].last for one in replica.shards
            )
            check_image(image / FOLDER, copy.deepcopy(fenced if has_fence else cluster))
            shutil.rmtree(image)


def check_image(folder: Path, cluster: MemoryCluster) -> None:
    asyncio.run(asyncio.wait_for(take_over(cluster, folder), 30))
    files = {path.name: path.read_bytes() for path in binlog_files(folder)}
    assert files == stream_files(cluster)
