"""A primary on a log in memory, which records what is stored whenever something is.

python primary_process.py MESSAGES FOLDER

MESSAGES gets the log. It has all messages, also those that the primary does not need any more.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from binlog.workload import Actor
from replication.memory_log import MemoryCluster, MemoryLog
from replication.replicas import Replicator, replicated
from replication.test_core import adopted, replies_to

from beanstalkd_py.binlog.layout import binlog_files, number_of
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.folder_copy import CopyState
from beanstalkd_py.replication.replica_state import ReplicaRecord, ReplicaState

IDENTITY = "identity"
STEPS = 200


class KeptLog(MemoryLog):
    async def purge(self, worker: int, before: int) -> None:
        """Keep everything."""


class RecordingReplicator(Replicator):
    """`record` is the file of `folder`."""

    def __init__(self, log: MemoryLog, folder: Path, epoch: int = 1) -> None:
        self._folder = folder
        self._record = ReplicaRecord(folder)
        self._record.open(ReplicaState(IDENTITY), [CopyState()])
        super().__init__(log, folder, epoch)

    async def _store(self, position: BinlogPosition) -> None:
        await super()._store(position)
        state = self._writer.state.copy()
        state.drop_before(number_of(binlog_files(self._folder)[0]))
        self._record.save([state], is_primary=True)


if __name__ == "__main__":
    cluster, actor = MemoryCluster(), Actor("power cut", largest=1500)
    top = Path(sys.argv[2])
    with replicated(top, KeptLog(cluster), kind=RecordingReplicator) as (core, _):
        client = adopted(core)
        for _ in range(STEPS):
            client.sendall(actor.next())
            assert actor.pending is not None
            actor.take(replies_to(actor.pending, core, client))
    Path(sys.argv[1]).write_bytes(pickle.dumps(cluster))
