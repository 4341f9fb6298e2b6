"""Resolve the request of `history replay`: which messages, and which state file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import TimeArgument
from beanstalkd_py.cli.connection_options import Server, TubeType
from beanstalkd_py.cli.history.message_format import time_text
from beanstalkd_py.cli.history.search import time_range
from beanstalkd_py.cli.history.store_options import StoreOptions, topic_of

if TYPE_CHECKING:
    from beanstalkd_py.history.queries.ranges import MessageRange
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.history.verify import Fault
    from beanstalkd_py.replay.jobs import JobOverrides
    from beanstalkd_py.replay.state import Replay, ReplayState

    Report = Callable[[Fault], None]
    RecordedReplay = tuple[Replay, ReplayState]


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    options: StoreOptions
    store: StoreReader
    server: Server
    tube: str
    into: str | None
    since: TimeArgument | None
    until: TimeArgument | None
    filters: tuple[str, ...]
    rate: float | None
    overrides: JobOverrides
    state: Path | None
    restart: bool
    as_json: bool

    def messages(self, replay: Replay, offset: int, report: Report) -> MessageRange:
        """Return the messages from a log offset on, before --filter."""
        from beanstalkd_py.history.queries.ranges import MessageRange

        return MessageRange(
            self.store,
            replay.topic,
            report,
            begin=replay.begin,
            end=replay.end,
            log_end=replay.log_end,
            offset=offset,
        )

    def count(self, replay: Replay, offset: int) -> int:
        return self.messages(replay, offset, _ignore).count()

    def state_path(self, replay: Replay) -> Path:
        """Return the state file of this replay into this server."""
        if self.state is not None:
            return self.state
        base = os.environ.get("XDG_STATE_HOME", "")
        try:
            folder = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise errors.ToolUsageError("no home folder; use --state FILE") from error
        key = json.dumps([*replay.key, str(self.server.address)])
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        name = re.sub(r"[^A-Za-z0-9._-]", "_", replay.into)[:60]
        return folder / "beanstalkd-py" / f"replay-{name}-{digest}.state"

    def resumed(
        self, replay: Replay, load: Callable[[], RecordedReplay | None]
    ) -> RecordedReplay | None:
        """Return the replay to continue, as `load` reads it; None to start `replay`.

        Raises ToolUsageError if the state file has another replay, or if a replay to start has no
        message, even without --filter.
        """
        recorded = None if self.restart else load()
        if recorded is not None:
            _check_same_replay(self.state_path(replay), recorded[0], replay)
        elif next(iter(self.messages(replay, 0, _ignore)), None) is None:
            times = range_text(replay)
            raise errors.ToolUsageError(f"tube {self.tube} has no job stored {times}")
        return recorded


def _ignore(_fault: object) -> None:
    """Drop a fault, because the run reports it."""


def resolve(request: ReplayRequest) -> Replay:
    """Return the replay that starts now. Raises ToolUsageError."""
    from beanstalkd_py.replay.state import Replay

    store, since, until = request.store, request.since, request.until
    topic = topic_of(store, request.tube)
    limits = time_range(since.wall_ns if since else None, until.wall_ns if until else None)
    if limits["begin"] > limits["end"]:
        raise errors.ToolUsageError("--from is not before --to")
    return Replay(
        store=os.path.realpath(request.options.folder),
        topic=topic,
        into=request.into or _tube_of_topic(store, topic),
        since=since.text if since else "",
        until=until.text if until else "",
        filters=sorted(set(request.filters)),
        log_begin=store.log.begin,
        log_end=store.log.end,
        begun_at=round(time.time(), 3),
        **limits,
    )


def _tube_of_topic(store: StoreReader, topic: str) -> str:
    from beanstalkd_py.history.queries.listing import messages_of_topic
    from beanstalkd_py.history.topics import tube_of, unescape

    first = next(messages_of_topic(store, topic, lambda _: None), None)
    name = unescape(topic) or topic if first is None else tube_of(first)
    try:
        tube: str = TubeType().convert(name, None, None)
    except click.BadParameter as error:
        raise errors.ToolUsageError(f"{error.message}; use --into TUBE") from error
    return tube


def _check_same_replay(path: Path, recorded: Replay, replay: Replay) -> None:
    """Raise ToolUsageError if the state file belongs to another replay or store."""
    if recorded.key != replay.key:
        names = ("store", "topic", "into", "from", "to", "filter")
        pairs = zip(names, recorded.key, replay.key, strict=True)
        differing = ", ".join(name for name, before, now in pairs if before != now)
        raise errors.ToolUsageError(
            f"{path} belongs to a replay with another {differing};"
            " use another --state FILE, or --restart"
        )
    if recorded.log_end > replay.log_end:
        raise errors.ToolUsageError(
            f"the store has been replaced since {path} was written; use --restart"
        )


def range_text(replay: Replay) -> str:
    begin, until = replay.begin, time_text(replay.end + 1)
    since = f"from {time_text(begin) or begin} " if begin else ""
    return f"{since}to {until}" if until else f"{since}until now"
