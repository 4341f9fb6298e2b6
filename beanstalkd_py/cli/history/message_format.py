"""Formats of messages of the history store: a line, full text, JSON.

The property `timeline` lists events separated by semicolons. Each is `KIND@NANOSECONDS` since the
epoch (`?`: unknown) with further fields after commas; `...N` stands for N omitted events.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

import click

from beanstalkd_py.cli.output import readable, write
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Stored

HEADINGS = (
    f"{'offset':>12}  {'stored (UTC)':24}  {'queue':>5}  {'queue offset':>12}"
    f"  {'keys':20}  {'tags':10}  {'body bytes':>10}  tube"
)
TIMELINE = "timeline"
CRC_PROPERTY = "__CRC32#"
"""RocketMQ's checksum of the message; not shown."""
_BUFFER_BYTES = 64 * 1024
_EPOCH = datetime.datetime(1970, 1, 1)
_EVENT = re.compile(r"([a-z]+)@(\d{1,19}|\?)((?:,[a-z]+=\d+)*)")
_OMITTED = re.compile(r"\.\.\.(\d+)")


def time_text(timestamp: int, unit: str = "milliseconds") -> str | None:
    """Format a number of units since the epoch; None if the year is out of range."""
    try:
        moment = _EPOCH + datetime.timedelta(**{unit: timestamp})
    except OverflowError:
        return None
    return moment.isoformat(timespec=unit) + "Z"


def to_json(message: Stored) -> dict[str, Any]:
    """Return the JSON object that `history export` describes."""
    from beanstalkd_py.admin.job_record import body_to_json
    from beanstalkd_py.history.message import host_text
    from beanstalkd_py.history.topics import tube_of

    return {
        "tube": tube_of(message),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "offset": message.offset,
        "size": message.size,
        "message_id": message.message_id,
        "keys": message.key_words,
        "tags": message.properties.get("TAGS"),
        "stored_at": time_text(message.store_timestamp),
        "born_at": time_text(message.born_timestamp),
        "born_host": host_text(message.born_host),
        "store_host": host_text(message.store_host),
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "prepared_offset": message.prepared_offset,
        "properties": message.properties,
        **body_to_json(message.body),
    }


def one_line(text: str) -> str:
    """Escape control characters, including line ends."""
    return readable(text.encode("utf-8", "surrogateescape")).replace("\n", "\\n").replace("\t", " ")


def line_of(message: Stored) -> str:
    from beanstalkd_py.history.topics import tube_of

    keys = one_line(" ".join(message.key_words)) or "-"
    tags = one_line(message.properties.get("TAGS", "")) or "-"
    return (
        f"{message.offset:12}  {time_text(message.store_timestamp) or '-':24}"
        f"  {message.queue_id:5}  {message.queue_offset:12}  {keys:20}  {tags:10}"
        f"  {len(message.body):10}  {one_line(tube_of(message))}"
    )


def full_text(message: Stored) -> str:
    from beanstalkd_py.history.message import host_text
    from beanstalkd_py.history.topics import tube_of

    fields = {
        "tube": tube_of(message),
        "topic": message.topic,
        "queue": f"{message.queue_id}, offset {message.queue_offset}",
        "log": f"offset {message.offset}, {counted(message.size, 'byte')}",
        "message id": message.message_id,
        "born": f"{time_text(message.born_timestamp) or '-'} by {host_text(message.born_host)}",
        "stored": f"{time_text(message.store_timestamp) or '-'} by {host_text(message.store_host)}",
        "reconsume times": str(message.reconsume_times),
        "flags": f"flag {message.flag}, sys flag {message.sys_flag}",
    }
    lines = [f"{name:16} {one_line(value)}" for name, value in fields.items()]
    for name, value in message.properties.items():
        events = timeline_lines(value) if name == TIMELINE else None
        if events is not None:
            lines += [f"{TIMELINE if not i else '':16} {text}" for i, text in enumerate(events)]
        elif name != CRC_PROPERTY:
            lines.append(f"{one_line(name):16} {one_line(value)}")
    body = f"{'body':16} {counted(len(message.body), 'byte')}"
    return "\n".join([*lines, body, readable(message.body)])


def timeline_lines(timeline: str) -> list[str] | None:
    """Format one line per event with the seconds since the previous one; None if invalid."""
    lines: list[str] = []
    previous_ns: int | None = None
    for text in timeline.split(";"):
        if omitted := _OMITTED.fullmatch(text):
            lines.append(f"{'':27}  {'':>12}  ({omitted[1]} events omitted)")
            previous_ns = None
            continue
        event = _EVENT.fullmatch(text)
        if event is None:
            return None
        kind, at, fields = event.groups()
        at_ns = None if at == "?" else int(at)
        at_text = "?" if at_ns is None else time_text(at_ns // 1000, "microseconds")
        since = ""
        if previous_ns is not None and at_ns is not None:
            since = f"+{(at_ns - previous_ns) / 1e9:.6f}"
        lines.append(f"{at_text:27}  {since:>12}  {kind}{fields.replace(',', ' ')}")
        previous_ns = at_ns
    return lines


def show(messages: Iterable[Stored], as_json: bool, paging: AbstractContextManager[object]) -> None:
    """Print messages; on a terminal through a pager, inside `paging`."""
    if not sys.stdout.isatty():
        with Lines(as_json) as lines:
            for message in messages:
                lines.add(message)
        return
    failures: list[OSError] = []

    def texts() -> Iterator[str]:
        separator = ""
        try:
            if not as_json:
                yield HEADINGS
                separator = "\n"  # click ends the last line
            for message in messages:
                yield separator + (json.dumps(to_json(message)) if as_json else line_of(message))
                separator = "\n"
        except OSError as error:  # click takes it for the end of the pager
            failures.append(error)

    # As git: do not clear the screen, truncate long lines, exit if the text fits.
    os.environ.setdefault("LESS", "FRSX")
    with paging:
        click.echo_via_pager(texts())
    if failures:
        raise failures[0]


class Lines:
    """Prints messages as lines or JSON; buffered unless `unbuffered`."""

    def __init__(self, as_json: bool, unbuffered: bool = False) -> None:
        self._as_json = as_json
        self._capacity = 0 if unbuffered else _BUFFER_BYTES
        self._buffer = [] if as_json else [HEADINGS + "\n"]
        self._length = 0

    def add(self, message: Stored) -> None:
        """Print a message. Raises ReaderGoneError, OutputError."""
        text = json.dumps(to_json(message)) if self._as_json else line_of(message)
        self._buffer.append(text + "\n")
        self._length += len(text)
        if self._length >= self._capacity:
            self.flush()

    def flush(self) -> None:
        text = "".join(self._buffer)
        self._buffer, self._length = [], 0
        write(text.encode("utf-8", "surrogateescape"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
