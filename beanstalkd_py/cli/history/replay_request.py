"""Which replay is meant: what the user asked for, and the state file that it goes with."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.connection_options import Server, TubeType
from beanstalkd_py.cli.history.message_format import time_text
from beanstalkd_py.cli.history.search import Warned, span
from beanstalkd_py.cli.history.store_options import Place, topic_of
from beanstalkd_py.cli.time_arguments import Said

if TYPE_CHECKING:
    from beanstalkd_py.history.queries.ranges import MessageRange
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.replay.jobs import Terms
    from beanstalkd_py.replay.state import Replay


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for."""

    server: Server
    tube: str
    into: str | None
    since: Said | None
    until: Said | None
    filters: tuple[str, ...]
    rate: float | None
    terms: Terms
    state: Path | None
    restart: bool
    as_json: bool

    def wanted(self) -> Warned:
        """Whether a message is to be put. ToolUsageError."""
        return Warned(self.filters)


def asked_for(place: Place, store: StoreReader, wish: Wish) -> Replay:
    """The replay as it is if it begins now. ToolUsageError."""
    from beanstalkd_py.replay.state import Replay

    topic = topic_of(store, wish.tube)
    since, until = wish.since, wish.until
    limits = span(
        None if since is None else since.wall_ns, None if until is None else until.wall_ns
    )
    if limits["begin"] > limits["end"]:
        raise errors.ToolUsageError("--from is not before --to")
    return Replay(
        store=os.path.realpath(place.folder),
        topic=topic,
        into=wish.into or _own_tube(store, topic),
        since=since.words if since else "",
        until=until.words if until else "",
        filters=sorted(set(wish.filters)),
        log_begin=store.log.begin,
        log_end=store.log.end,
        begun_at=round(time.time(), 3),
        **limits,
    )


def _own_tube(store: StoreReader, topic: str) -> str:
    from beanstalkd_py.history.queries.listing import messages_of_topic
    from beanstalkd_py.history.topics import tube_of, unescape

    first = next(messages_of_topic(store, topic, lambda _: None), None)
    name = unescape(topic) or topic if first is None else tube_of(first)
    try:
        return TubeType().convert(name, None, None)
    except click.BadParameter as error:
        raise errors.ToolUsageError(f"{error.message}; give --into TUBE") from error


def default_state(asked: Replay, server: Server) -> Path:
    """The file for this replay into this server."""
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise errors.ToolUsageError("there is no home folder; give --state FILE") from error
    said = json.dumps([*asked.key, str(server.address)])
    digest = hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:20]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", asked.into)[:60]
    return folder / "beanstalkd-py" / f"replay-{name}-{digest}.state"


def same(path: Path, found: Replay, asked: Replay) -> Replay:
    """The one that was begun. ToolUsageError if it is another."""
    if found.key != asked.key:
        names = ("store", "topic", "into", "from", "to", "filter")
        pairs = zip(names, found.key, asked.key, strict=True)
        differing = ", ".join(name for name, before, now in pairs if before != now)
        raise errors.ToolUsageError(
            f"{path} is of another replay, with another {differing};"
            " give another --state FILE, or --restart"
        )
    if found.log_end > asked.log_end:
        raise errors.ToolUsageError(
            f"the store is another one than when {path} was written; --restart begins anew"
        )
    return found


def part_of(
    place: Place, store: StoreReader, asked: Replay, offset: int, quiet: bool = False
) -> MessageRange:
    """Its messages from an offset of the log on; `quiet` tells of no damage."""
    from beanstalkd_py.history.queries.ranges import MessageRange

    limits = {"begin": asked.begin, "end": asked.end, "log_end": asked.log_end}
    tell = (lambda _: None) if quiet else place.tell
    return MessageRange(store, asked.topic, tell, offset=offset, **limits)


def check_not_empty(wish: Wish, part: MessageRange) -> None:
    """ToolUsageError if there is nothing to put, whatever --filter says."""
    if next(iter(part), None) is None:
        raise errors.ToolUsageError(
            f"tube {wish.tube} has no job that was stored {range_text(part.begin, part.end)}"
        )


def range_text(begin: int, end: int) -> str:
    """Two times in milliseconds, both included, as --from and --to have them."""
    since = f"from {time_text(begin) or begin} " if begin else ""
    until = time_text(end + 1)
    return f"{since}to {until}" if until else f"{since}until now"
