"""Resolve the request of `history replay`: which messages, and which state file."""

from __future__ import annotations

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
        from beanstalkd_py.replay.resume import messages_of

        return messages_of(self.store, replay, offset, report)

    def count(self, replay: Replay, offset: int) -> int:
        from beanstalkd_py.replay.resume import count_messages

        return count_messages(self.store, replay, offset)

    def state_path(self, replay: Replay) -> Path:
        """Return the state file of this replay into this server."""
        from beanstalkd_py.replay.resume import state_path

        return self.state or state_path(replay, str(self.server.address))

    def resumed(
        self, replay: Replay, load: Callable[[], RecordedReplay | None]
    ) -> RecordedReplay | None:
        """Return the replay to continue, as `load` reads it; None to start `replay`.

        Raises ToolUsageError if the state file has another replay, or if a replay to start has no
        message, even without --filter.
        """
        from beanstalkd_py.replay.resume import ignore_fault

        recorded = None if self.restart else load()
        if recorded is not None:
            _check_same_replay(self.state_path(replay), recorded[0], replay)
        elif next(iter(self.messages(replay, 0, ignore_fault)), None) is None:
            times = range_text(replay)
            raise errors.ToolUsageError(f"tube {self.tube} has no job stored {times}")
        return recorded


def resolve(request: ReplayRequest) -> Replay:
    """Return the replay that starts now. Raises ToolUsageError."""
    from beanstalkd_py.replay.resume import new_replay

    store, since, until = request.store, request.since, request.until
    topic = topic_of(store, request.tube)
    limits = time_range(since.wall_ns if since else None, until.wall_ns if until else None)
    if limits["begin"] > limits["end"]:
        raise errors.ToolUsageError("--from is not before --to")
    return new_replay(
        store,
        topic,
        request.into or _tube_of_topic(store, topic),
        since=since.text if since else "",
        until=until.text if until else "",
        filters=request.filters,
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
    from beanstalkd_py.replay.resume import is_store_replaced

    if recorded.key != replay.key:
        names = ("store", "topic", "into", "from", "to", "filter")
        pairs = zip(names, recorded.key, replay.key, strict=True)
        differing = ", ".join(name for name, before, now in pairs if before != now)
        raise errors.ToolUsageError(
            f"{path} belongs to a replay with another {differing};"
            " use another --state FILE, or --restart"
        )
    if is_store_replaced(recorded, replay):
        raise errors.ToolUsageError(
            f"the store has been replaced since {path} was written; use --restart"
        )


def range_text(replay: Replay) -> str:
    begin, until = replay.begin, time_text(replay.end + 1)
    since = f"from {time_text(begin) or begin} " if begin else ""
    return f"{since}to {until}" if until else f"{since}until now"
