"""How a server joins a replicated queue: the configuration of all servers, and its own folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.archiver.folder_identity import known_identity
from beanstalkd_py.binlog.layout import REPLICA, binlog_files
from beanstalkd_py.replication.lease import Keys
from beanstalkd_py.replication.log import CONFIGURATION, LogUnavailableError, WrongSequenceError
from beanstalkd_py.replication.replica_state import ReplicaState, load_replica, save_replica

IDENTITY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Configuration:
    """What all servers of a replicated queue have in common: the key CONFIGURATION.

    `is_complete` is false until the streams have everything that the first folder had.
    `history_ids` are the identities of the workers' folders in all histories.
    """

    identity: str
    workers: int
    colocate: str | None = None
    is_complete: bool = False
    history_ids: Sequence[str] = ()

    def check(self, workers: int, colocate: str | None) -> None:
        """Raise ReplicationError unless a server has these options."""
        if (self.workers, self.colocate) != (workers, colocate):
            raise errors.ReplicationError(
                f"the replicated queue has --workers {self.workers}"
                + (f" --colocate {self.colocate}" if self.colocate else "")
                + "; start this server with the same options, on an empty binlog folder"
            )


@dataclass(frozen=True, slots=True)
class Member:
    """A server by its files: `top` is its binlog folder, `folders` those of its workers."""

    top: Path
    folders: Sequence[Path]
    colocate: str | None

    async def join(self, log: Keys) -> tuple[Configuration, int]:
        """Return the configuration and its revision; write it if the queue is new.

        Raises LogUnavailableError, ReplicationError.
        """
        record = await log.get(CONFIGURATION)
        if record is None:
            await self._begin_queue(log)
            record = await log.get(CONFIGURATION)
        if record is None:
            raise LogUnavailableError("NATS lacks the configuration that was just written")
        return record.decode(Configuration), record.revision

    async def _begin_queue(self, log: Keys) -> None:
        replica = load_replica(self.top)
        if replica is not None and not replica.is_origin:
            raise errors.ReplicationError(
                f"binlog folder {self.top} is a replica of a queue that NATS does not have; if"
                f" NATS has lost it, remove {self.top / REPLICA} on the server with the newest"
                " folder, and start that one first"
            )
        # The outcome of an earlier attempt may be unknown, so it is repeated with its identity.
        identity = replica.identity if replica is not None else os.urandom(IDENTITY_BYTES).hex()
        # First the file: only the folder that has it may write the first content (N2).
        save_replica(self.top, ReplicaState(identity, is_origin=True))
        ids = [
            known_identity(folder) or f"{identity}-{worker}"
            for worker, folder in enumerate(self.folders)
        ]
        mine = Configuration(identity, len(self.folders), self.colocate, history_ids=ids)
        with contextlib.suppress(WrongSequenceError):
            await log.put(CONFIGURATION, asdict(mine), 0)

    def replica_of(self, identity: str) -> ReplicaState:
        """Return the state of the folder, which is a copy of that queue or may become one.

        Raises ReplicationError if it has other jobs, BinlogFolderError, OSError.
        """
        replica = load_replica(self.top)
        if replica is not None and replica.identity == identity:
            return replica
        if replica is not None and not replica.is_origin:
            raise errors.ReplicationError(
                f"binlog folder {self.top} is a replica of another queue ({replica.identity}, not"
                f" {identity}); use another folder, or another name in --replicate"
            )
        if any(binlog_files(folder) for folder in self.folders):
            raise errors.ReplicationError(
                f"binlog folder {self.top} has jobs that the replicated queue does not have; start"
                " on an empty folder, or use another name in --replicate"
            )
        replica = ReplicaState(identity, is_primary=False)
        save_replica(self.top, replica)
        return replica
