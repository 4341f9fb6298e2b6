"""The file replica.json: to which replicated queue a folder belongs, and what it has of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import REPLICA
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular
from beanstalkd_py.replication.folder_copy import CopyState

LOGGER = logging.getLogger("beanstalkd_py")

FORMAT = 1


@dataclass(slots=True)
class ReplicaState:
    """`identity` is that of the queue's configuration. `shards` are the copies, by worker.

    With `is_origin` the folder is the first one of the queue, and the streams do not have all of
    it yet. With `is_primary` no server had more when the file was written.
    """

    identity: str
    is_origin: bool = False
    is_primary: bool = True
    shards: list[CopyState] = field(default_factory=list)


def load_replica(folder: Path) -> ReplicaState | None:
    """Return the state of a folder, None if it is no replica. Raises BinlogFolderError."""
    path = folder / REPLICA
    try:
        values = json.loads(read_regular(path))
        if values["format"] != FORMAT:
            raise ValueError(f"unknown format {values['format']!r}")
        shards = [CopyState.decode(one) for one in values["shards"]]
        # Older files lack it.
        is_primary = bool(values.get("primary", True))
        return ReplicaState(str(values["identity"]), bool(values["origin"]), is_primary, shards)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.BinlogFolderError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.BinlogFolderError(f"{path} is damaged: {error!r}") from error


def save_replica(folder: Path, replica: ReplicaState) -> None:
    """Replace the file durably. The files of the folder must be on disk. Raises OSError."""
    values = {
        "format": FORMAT,
        "identity": replica.identity,
        "origin": replica.is_origin,
        "primary": replica.is_primary,
        "shards": [one.encode() for one in replica.shards],
    }
    write_file(folder / REPLICA, json.dumps(values).encode() + b"\n")


class ReplicaRecord:
    """The file of a folder while its server runs."""

    def __init__(self, top: Path) -> None:
        self.sequences: list[int] = []
        """The last messages of the streams that a restart of this server will have."""
        self.positions: list[BinlogPosition] = []
        """The ends of these messages."""
        self._top = top
        self._saved = ReplicaState("")
        self._failure = ""
        """Why the file could not be written the last time."""

    def open(self, replica: ReplicaState, states: Sequence[CopyState]) -> None:
        """Begin with these states, which the file has or which are empty."""
        self._saved = replace(replica, shards=[])
        self._take(states)
        if replica.is_primary and not replica.is_origin:
            self.save(states, is_primary=False)

    def save(self, states: Sequence[CopyState], is_primary: bool) -> None:
        """Record these states, unless they are recorded already."""
        replica = ReplicaState(self._saved.identity, False, is_primary, list(states))
        if replica == self._saved:
            return
        try:
            save_replica(self._top, replica)
        except OSError as error:
            # An older record is valid, too, and on a full disk clients still delete jobs.
            if str(error) != self._failure:
                LOGGER.warning("cannot write %s: %s", self._top / REPLICA, error.strerror)
            self._failure = str(error)
        else:
            self._failure = ""
            self._saved = replace(replica, shards=[state.copy() for state in states])
            self._take(states)

    def _take(self, states: Sequence[CopyState]) -> None:
        self.sequences = [state.sequence for state in states]
        self.positions = [state.position for state in states]
