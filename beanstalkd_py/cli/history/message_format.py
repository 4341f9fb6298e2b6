"""How a message of the history store is shown: as a line, in full, as JSON.

A JSON object has: tube, topic, queue_id, queue_offset, offset (of the log) and size (bytes),
message_id (RocketMQ's), keys, tags, stored_at, born_at, born_host, store_host, reconsume_times,
flag, sys_flag, prepared_offset, properties, and body or, if it is no UTF-8, body_base64. It must
not know where messages come from.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from beanstalkd_py.cli.history.timeline import PROPERTY, lines_of
from beanstalkd_py.cli.output import readable, write
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Host, Stored

HEADINGS = (
    f"{'offset':>12}  {'stored (UTC)':24}  {'queue':>5}  {'queue offset':>12}"
    f"  {'keys':20}  {'tags':10}  {'body bytes':>10}  tube"
)
CRC_PROPERTY = "__CRC32#"
"""RocketMQ's checksum of a message, which is about the message and nothing in it."""
_WRITTEN_AT_ONCE = 64 * 1024
_EPOCH = datetime.datetime(1970, 1, 1)


def time_text(timestamp: int) -> str | None:
    """Milliseconds since 1970 as a date and time, None if there is none so far away."""
    try:
        moment = _EPOCH + datetime.timedelta(milliseconds=timestamp)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + "Z"


def to_json(message: Stored) -> dict[str, Any]:
    """The object described above."""
    from beanstalkd_py.admin.job_record import body_to_json
    from beanstalkd_py.history.topics import tube_of

    return {
        "tube": tube_of(message),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "offset": message.offset,
        "size": message.size,
        "message_id": message.message_id,
        "keys": _keys(message),
        "tags": message.properties.get("TAGS"),
        "stored_at": time_text(message.store_timestamp),
        "born_at": time_text(message.born_timestamp),
        "born_host": _host(message.born_host),
        "store_host": _host(message.store_host),
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "prepared_offset": message.prepared_offset,
        "properties": message.properties,
        **body_to_json(message.body),
    }


def _keys(message: Stored) -> list[str]:
    return [word for word in message.properties.get("KEYS", "").split(" ") if word]


def _host(host: Host | None) -> str | None:
    if host is None:
        return None
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def one_line(text: str) -> str:
    """Text of anybody, so that it cannot begin a line of its own."""
    return readable(text.encode("utf-8", "surrogateescape")).replace("\n", "\\n").replace("\t", " ")


def line_of(message: Stored) -> str:
    """The columns of HEADINGS."""
    from beanstalkd_py.history.topics import tube_of

    keys = one_line(" ".join(_keys(message))) or "-"
    tags = one_line(message.properties.get("TAGS", "")) or "-"
    return (
        f"{message.offset:12}  {time_text(message.store_timestamp) or '-':24}"
        f"  {message.queue_id:5}  {message.queue_offset:12}  {keys:20}  {tags:10}"
        f"  {len(message.body):10}  {one_line(tube_of(message))}"
    )


def full_text(message: Stored) -> str:
    """Everything, a line for each field, then the body."""
    from beanstalkd_py.history.topics import tube_of

    fields = {
        "tube": tube_of(message),
        "topic": message.topic,
        "queue": f"{message.queue_id}, offset {message.queue_offset}",
        "log": f"offset {message.offset}, {counted(message.size, 'byte')}",
        "message id": message.message_id,
        "born": f"{time_text(message.born_timestamp) or '-'} by {_host(message.born_host)}",
        "stored": f"{time_text(message.store_timestamp) or '-'} by {_host(message.store_host)}",
        "reconsume times": str(message.reconsume_times),
        "flags": f"flag {message.flag}, sys flag {message.sys_flag}",
    }
    lines = [f"{name:16} {one_line(value)}" for name, value in fields.items()]
    for name, value in message.properties.items():
        events = lines_of(value) if name == PROPERTY else None
        if events is not None:
            lines += [f"{PROPERTY if not i else '':16} {text}" for i, text in enumerate(events)]
        elif name != CRC_PROPERTY:
            lines.append(f"{one_line(name):16} {one_line(value)}")
    body = f"{'body':16} {counted(len(message.body), 'byte')}"
    return "\n".join([*lines, body, readable(message.body)])


def show(messages: Iterable[Stored], as_json: bool, paging: AbstractContextManager[object]) -> None:
    """Messages to stdout; on a terminal through the user's pager, which `paging` is around."""
    if not sys.stdout.isatty():
        with Lines(as_json) as lines:
            for message in messages:
                lines.add(message)
        return
    failures: list[OSError] = []

    def texts() -> Iterator[str]:
        before = ""
        try:
            if not as_json:
                yield HEADINGS
                before = "\n"  # click ends the last line
            for message in messages:
                yield before + (json.dumps(to_json(message)) if as_json else line_of(message))
                before = "\n"
        except OSError as error:  # click takes it for a pager that has gone
            failures.append(error)

    # As git does: what fits on the screen is printed, long lines are cut, nothing is cleared.
    os.environ.setdefault("LESS", "FRSX")
    with paging:
        click.echo_via_pager(texts())
    if failures:
        raise failures[0]


class Lines:
    """Messages to stdout, many at a time; one by one with `at_once`. As lines, or as JSON."""

    def __init__(self, as_json: bool, at_once: bool = False) -> None:
        self._as_json = as_json
        self._room = 0 if at_once else _WRITTEN_AT_ONCE
        self._waiting = [] if as_json else [HEADINGS + "\n"]
        self._length = 0

    def add(self, message: Stored) -> None:
        """One more. ReaderGoneError, OutputError."""
        text = json.dumps(to_json(message)) if self._as_json else line_of(message)
        self._waiting.append(text + "\n")
        self._length += len(text)
        if self._length >= self._room:
            self.flush()

    def flush(self) -> None:
        """What waits, out of this process."""
        text = "".join(self._waiting)
        self._waiting, self._length = [], 0
        write(text.encode("utf-8", "surrogateescape"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
