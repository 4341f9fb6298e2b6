"""Programs that would change a replica without its replicated log refuse its folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from core.rig import Rig

from beanstalkd_py.binlog.layout import REPLICA
from beanstalkd_py.replication.replica_state import ReplicaState, load_replica, save_replica

COMMANDS = [
    (["serve", "-p", "0", "-b"], 10),
    (["serve", "-p", "0", "--workers", "2", "-b"], 10),
    (["binlog", "compact"], 2),
    (["binlog", "reshard", "--workers", "2"], 2),
]


@pytest.fixture
def replica(folder: Path) -> Path:
    with Rig(folder) as rig:
        rig.client().put(b"body")
        rig.stop()
    save_replica(folder, ReplicaState("identity"))
    return folder


@pytest.mark.parametrize(("command", "status"), COMMANDS)
def test_a_replica_is_refused(replica: Path, command: list[str], status: int) -> None:
    before = {path.name: path.read_bytes() for path in replica.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "beanstalkd_py", *command, str(replica)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == status and "is a replica (replica.json)" in done.stderr, done.stderr
    assert {path.name: path.read_bytes() for path in replica.iterdir()} == before


def test_a_copy_without_the_file_is_a_usual_folder(replica: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(replica, copy)
    (copy / REPLICA).unlink()
    assert load_replica(copy) is None
    with Rig(copy) as rig:
        assert rig.client().body(1) == b"body"
