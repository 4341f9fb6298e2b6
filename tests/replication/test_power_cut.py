"""The power of a standby or primary is cut at any moment: from every disk image it serves again."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from binlog.workload import Actor
from crash.disk_images import Disk, whole_records
from crash.recorder import build_recorder, recorded_script
from replication.memory_log import MemoryCluster, MemoryLog
from replication.primary_process import IDENTITY
from replication.replicas import replicated
from replication.standby_process import take_over
from replication.test_core import adopted, replies_to
from replication.test_node import stream_files

from beanstalkd_py.binlog.layout import binlog_files
from beanstalkd_py.replication.log import CONFIGURATION
from beanstalkd_py.replication.membership import Configuration
from beanstalkd_py.replication.replica_state import load_replica

CUTS = 40
IMAGES = 3
FOLDER = "binlog"


def recorded(home: Path, script: str) -> bytes:
    """Run a script on `home / "messages"`, and return the recording of its file operations."""
    folder = home / "disk" / FOLDER
    folder.mkdir(parents=True)
    return recorded_script(build_recorder(home), home, script, str(home / "messages"), str(folder))


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
    configure(log.cluster)
    return log.cluster


def configure(cluster: MemoryCluster) -> None:
    configuration = Configuration(IDENTITY, 1, is_complete=True)
    cluster.keys[CONFIGURATION] = json.dumps(asdict(configuration)).encode(), 1
    cluster.revision = 1


@pytest.mark.costly
@pytest.mark.usefixtures("short_times")
def test_a_standby_takes_over_from_every_image(folder: Path, tmp_path: Path) -> None:
    cluster = with_messages(folder)
    messages = cluster.streams[0].messages
    assert min(messages) > 1 and len(stream_files(cluster)) > 2
    (tmp_path / "messages").write_bytes(pickle.dumps(cluster))
    recording = recorded(tmp_path, "replication/standby_process.py")
    fenced = pickle.loads((tmp_path / "messages").read_bytes())
    for image in images(recording, tmp_path, random.Random("standby")):
        # The last record is written after the fence.
        has_fence = recorded_sequence(image) > cluster.streams[0].last
        check_image(image, copy.deepcopy(fenced if has_fence else cluster))


@pytest.mark.costly
@pytest.mark.usefixtures("short_times")
def test_a_primary_has_all_stored_jobs_in_every_image(tmp_path: Path) -> None:
    """The stream may have more than was recorded. Whatever else was written is cut."""
    recording = recorded(tmp_path, "replication/primary_process.py")
    whole = pickle.loads((tmp_path / "messages").read_bytes())
    configure(whole)
    dice = random.Random("primary")
    known = set()
    for image in images(recording, tmp_path, dice):
        cluster = copy.deepcopy(whole)
        stream = cluster.streams[0]
        known.add(recorded_sequence(image))
        stream.last = dice.randint(max(recorded_sequence(image), 1), stream.last)
        stream.messages = {at: one for at, one in stream.messages.items() if at <= stream.last}
        last = stream.messages[stream.last]
        stream.epoch, stream.end = last.epoch, last.end
        check_image(image, cluster)
    assert len(known) > 10


def images(recording: bytes, home: Path, dice: random.Random) -> Iterator[Path]:
    """Yield the folder of each image."""
    disk = Disk(home / "disk", [FOLDER])
    played = 0
    for at in sorted(dice.randrange(len(recording)) for _ in range(CUTS)):
        at = whole_records(recording, at)
        disk.play(recording[played:at])
        played = at
        for number in range(IMAGES):
            image = home / "image"
            disk.image(dice if number else None).write(image)
            yield image / FOLDER
            shutil.rmtree(image)


def recorded_sequence(folder: Path) -> int:
    replica = load_replica(folder)
    return max((one.sequence for one in replica.shards), default=0) if replica else 0


def check_image(folder: Path, cluster: MemoryCluster) -> None:
    asyncio.run(asyncio.wait_for(take_over(cluster, folder), 30))
    files = {path.name: path.read_bytes() for path in binlog_files(folder)}
    assert files == stream_files(cluster)
