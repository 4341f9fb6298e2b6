"""Begin or continue a replay: its messages, its state file, and what has expired meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.history.queries.ranges import MessageRange
from beanstalkd_py.history.reader import StoreReader
from beanstalkd_py.history.verify import Fault
from beanstalkd_py.replay.state import Replay, ReplayState

Report = Callable[[Fault], None]


def new_replay(
    store: StoreReader,
    topic: str,
    into: str,
    *,
    begin: int,
    end: int,
    since: str = "",
    until: str = "",
    filters: Iterable[str] = (),
) -> Replay:
    """Return a replay that starts now. `since` and `until` are the texts of `begin` and `end`."""
    return Replay(
        store=os.path.realpath(store.folder),
        topic=topic,
        into=into,
        since=since,
        until=until,
        filters=sorted(set(filters)),
        begin=begin,
        end=end,
        log_begin=store.log.begin,
        log_end=store.log.end,
        begun_at=round(time.time(), 3),
    )


def messages_of(store: StoreReader, replay: Replay, offset: int, report: Report) -> MessageRange:
    """Return the messages from a log offset on, before any filter."""
    return MessageRange(
        store,
        replay.topic,
        report,
        begin=replay.begin,
        end=replay.end,
        log_end=replay.log_end,
        offset=offset,
    )


def count_messages(store: StoreReader, replay: Replay, offset: int) -> int:
    return messages_of(store, replay, offset, ignore_fault).count()


def ignore_fault(_fault: object) -> None:
    """Drop a fault, because the run reports it."""


def state_path(replay: Replay, address: str) -> Path:
    """Return the default state file of a replay into a server. Raises ToolUsageError."""
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise errors.ToolUsageError("no home folder; use --state FILE") from error
    key = json.dumps([*replay.key, address])
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", replay.into)[:60]
    return folder / "beanstalkd-py" / f"replay-{name}-{digest}.state"


def is_store_replaced(recorded: Replay, replay: Replay) -> bool:
    """Return whether the store is another one than that of a recorded replay."""
    return recorded.log_end > replay.log_end


def skip_expired(store: StoreReader, replay: Replay, state: ReplayState) -> None:
    """Count the messages that the store has removed since the last run, and continue after them."""
    log_begin = store.log.begin
    if log_begin <= max(replay.log_begin, state.offset):
        return
    rest = count_messages(store, replay, state.offset)
    expired = max(replay.total - state.looked_at - rest, 0)
    state.expired += expired
    state.looked_at += expired
    state.offset = log_begin
