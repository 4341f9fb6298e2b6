"""Commands of the protocol: their bytes, and the decoder of their replies.

`Client` uses the commands of extensions, and greenstalk for the others. `AsyncClient` uses all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, cast, get_args

import greenstalk
from greenstalk import TBody

from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.client import replies
from beanstalkd_py.client.records import BatchJob, JobEnd, JobPage, ListedState
from beanstalkd_py.client.replies import DecodeBody, Decoder, Result

PAGE_ROWS = 1000
"""The server's maximum of jobs in one page."""
BATCH_JOBS = 1000
"""The server's maximum of jobs in one batch."""
SECONDS_MAX = 2**31 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Command(Generic[Result]):
    """The bytes of one command, how to decode its reply, and the extension that it needs.

    `waits`: the server may wait before it replies, until `reserve-abort`. `has_body`: a body
    follows the line. After the reply BAD_FORMAT to the line the server executes it as commands.
    """

    data: bytes
    decoder: Callable[[], Decoder[Result]]
    feature: str | None = None
    waits: bool = False
    has_body: bool = False


def features() -> Command[frozenset[str]]:
    return Command(b"features\r\n", replies.read_features)


def truncate(tube: str) -> Command[int]:
    decoder = partial(replies.read_number, b"TRUNCATED")
    return Command(b"truncate %b\r\n" % _tube(tube), decoder, "truncate")


def move(job_id: int, tube: str, priority: int, delay: int) -> Command[int]:
    line = b"move %d %b %d %d\r\n" % (
        _id(job_id),
        _tube(tube),
        _number("priority", priority, U32_MAX),
        _number("delay", delay, U32_MAX),
    )
    return Command(line, partial(replies.read_number, b"MOVED"), "move")


def list_jobs(tube: str, state: ListedState, after: int) -> Command[JobPage]:
    if state not in get_args(ListedState):
        raise ValueError(f"invalid state {state!r}: use {', '.join(get_args(ListedState))}")
    arguments = (_tube(tube), state.encode("ascii"), _id(after), PAGE_ROWS)
    line = b"list-jobs %b %b %d %d\r\n" % arguments
    return Command(line, replies.read_page, "list-jobs")


def wait(seconds: int, job_id: int) -> Command[JobEnd]:
    line = b"wait %d %d\r\n" % (_number("seconds", seconds, SECONDS_MAX), _id(job_id))
    return Command(line, replies.read_end, "wait", waits=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOptions:
    """What `with` sets for a put; None: not set."""

    unique: str | None = None
    window: int | None = None
    expires: int | None = None
    delay_ms: int | None = None

    def line(self) -> bytes:
        """Return the line before the put, which is empty without options. Raises ValueError."""
        words = []
        if self.unique is not None:
            words.append(b"unique=" + _key(self.unique))
        if self.window is not None:
            if self.unique is None:
                raise ValueError("a window needs a key: use unique")
            words.append(b"window=%d" % _number("window", self.window, U32_MAX, 1))
        if self.expires is not None:
            words.append(b"expires=%d" % _number("expires", self.expires, U32_MAX, 1))
        if self.delay_ms is not None:
            words.append(b"delay-ms=%d" % _number("delay_ms", self.delay_ms, U32_MAX))
        return b"with %b\r\n" % b" ".join(words) if words else b""


def put(
    body: bytes, priority: int, delay: int, ttr: int, options: PutOptions | None = None
) -> Command[int]:
    line = b"put %d %d %d %d\r\n" % (
        _number("priority", priority, U32_MAX),
        _number("delay", delay, U32_MAX),
        _number("TTR", ttr, U32_MAX),
        _number("body size", len(body), U32_MAX),
    )
    before = options.line() if options is not None else b""
    data = b"%b%b%b\r\n" % (before, line, body)
    if before:
        return Command(data, replies.read_put_with_options, "with", has_body=True)
    return Command(data, partial(replies.read_number, b"INSERTED"), has_body=True)


def use(tube: str) -> Command[None]:
    return Command(b"use %b\r\n" % _tube(tube), partial(replies.read_nothing, b"USING"))


def using() -> Command[str]:
    return Command(b"list-tube-used\r\n", partial(replies.read_name, b"USING"))


def watch(tube: str) -> Command[int]:
    return Command(b"watch %b\r\n" % _tube(tube), partial(replies.read_number, b"WATCHING"))


def ignore(tube: str) -> Command[int]:
    return Command(b"ignore %b\r\n" % _tube(tube), partial(replies.read_number, b"WATCHING"))


def watching() -> Command[list[str]]:
    return Command(b"list-tubes-watched\r\n", replies.read_list)


def tubes() -> Command[list[str]]:
    return Command(b"list-tubes\r\n", replies.read_list)


def reserve(timeout: int | None, decode: DecodeBody[TBody]) -> Command[greenstalk.Job[TBody]]:
    if timeout is None:
        line = b"reserve\r\n"
    else:
        line = b"reserve-with-timeout %d\r\n" % _number("timeout", timeout, SECONDS_MAX)
    return Command(line, partial(replies.read_job, b"RESERVED", decode), waits=timeout != 0)


def reserve_batch(
    most: int, timeout: int, decode: DecodeBody[TBody]
) -> Command[list[BatchJob[TBody]]]:
    line = b"reserve-batch %d %d\r\n" % (
        _number("number of jobs", most, BATCH_JOBS, 1),
        _number("timeout", timeout, SECONDS_MAX),
    )
    decoder = partial(replies.read_batch, decode)
    return Command(line, decoder, "reserve-batch", waits=timeout != 0)


def reserve_job(job_id: int, decode: DecodeBody[TBody]) -> Command[greenstalk.Job[TBody]]:
    line = b"reserve-job %d\r\n" % _id(job_id)
    return Command(line, partial(replies.read_job, b"RESERVED", decode))


def peek(job_id: int, decode: DecodeBody[TBody]) -> Command[greenstalk.Job[TBody]]:
    return Command(b"peek %d\r\n" % _id(job_id), partial(replies.read_job, b"FOUND", decode))


def peek_state(state: str, decode: DecodeBody[TBody]) -> Command[greenstalk.Job[TBody]]:
    line = b"peek-%b\r\n" % state.encode("ascii")
    return Command(line, partial(replies.read_job, b"FOUND", decode))


def delete(job_id: int) -> Command[None]:
    return Command(b"delete %d\r\n" % _id(job_id), partial(replies.read_nothing, b"DELETED"))


def release(job_id: int, priority: int, delay: int) -> Command[None]:
    line = b"release %d %d %d\r\n" % (
        _id(job_id),
        _number("priority", priority, U32_MAX),
        _number("delay", delay, U32_MAX),
    )
    return Command(line, partial(replies.read_nothing, b"RELEASED"))


def bury(job_id: int, priority: int) -> Command[None]:
    line = b"bury %d %d\r\n" % (_id(job_id), _number("priority", priority, U32_MAX))
    return Command(line, partial(replies.read_nothing, b"BURIED"))


def touch(job_id: int) -> Command[None]:
    return Command(b"touch %d\r\n" % _id(job_id), partial(replies.read_nothing, b"TOUCHED"))


def kick(bound: int) -> Command[int]:
    # The server reads the bound by strtoul, which accepts a sign.
    line = b"kick %d\r\n" % _number("bound", bound, U64_MAX, -U64_MAX)
    return Command(line, partial(replies.read_number, b"KICKED"))


def kick_job(job_id: int) -> Command[None]:
    return Command(b"kick-job %d\r\n" % _id(job_id), partial(replies.read_nothing, b"KICKED"))


def pause_tube(tube: str, delay: int) -> Command[None]:
    line = b"pause-tube %b %d\r\n" % (_tube(tube), _number("delay", delay, U32_MAX))
    return Command(line, partial(replies.read_nothing, b"PAUSED"))


def stats() -> Command[greenstalk.Stats]:
    return _statistics(b"stats", greenstalk.Stats)


def stats_job(job_id: int) -> Command[greenstalk.StatsJob]:
    return _statistics(b"stats-job %d" % _id(job_id), greenstalk.StatsJob)


def stats_tube(tube: str) -> Command[greenstalk.StatsTube]:
    return _statistics(b"stats-tube %b" % _tube(tube), greenstalk.StatsTube)


def _statistics(line: bytes, kind: type[Result]) -> Command[Result]:
    decoder = partial(replies.read_statistics, kind.__annotations__)
    return cast(Command[Result], Command(line + b"\r\n", decoder))


def _tube(name: str) -> bytes:
    """Encode a name. Raises ValueError, because a line end in a name would begin a command."""
    if not is_tube_name(name):
        raise ValueError(f"invalid tube name {name!r}: use {TUBE_NAMES}")
    return name.encode("ascii")


def _number(what: str, value: int, most: int, least: int = 0) -> int:
    """Return the value. Raises ValueError if the server's parser would reject it."""
    if not least <= value <= most:
        raise ValueError(f"{what} {value} is out of range: use {least} to {most}")
    return value


def _key(key: str) -> bytes:
    """Return the key as bytes. Raises ValueError if the server's parser would reject it."""
    if not re.fullmatch(r"[!-~]{1,128}", key):
        raise ValueError(f"invalid key {key!r}: use 1 to 128 visible ASCII characters")
    return key.encode("ascii")


def _id(job_id: int) -> int:
    return _number("job id", job_id, U64_MAX)


def encoded(body: TBody, encoding: str | None) -> bytes:
    """Convert a client's type of body to bytes."""
    if not isinstance(body, str):
        return body
    if encoding is None:
        raise TypeError("cannot encode a string: the client has no encoding")
    return body.encode(encoding)


def id_of(job: greenstalk.JobOrID[TBody]) -> int:
    return job if isinstance(job, int) else job.id
