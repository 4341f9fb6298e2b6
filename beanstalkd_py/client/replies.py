"""Decoders of replies: generators that request input and return a value, without I/O.

A decoder yields LINE to get the next line, or a number to get that many bytes. Both clients drive
the same decoders. A decoder raises greenstalk's exception for a negative reply, and ConnectionError
at the end of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TypeVar, cast

import greenstalk
from greenstalk import TBody

from beanstalkd_py.client.records import BatchJob, JobEnd, JobPage, ListedJob

LINE = -1
"""The request for a line."""

Result = TypeVar("Result")
Decoder = Generator[int, bytes, Result]
Words = list[bytes]
DecodeBody = Callable[[bytes], TBody]


def _read_words() -> Decoder[Words]:
    line = yield LINE
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    return line.split() or [b""]


def _read_chunk(size: int) -> Decoder[bytes]:
    data = yield size + 2
    if len(data) != size + 2:
        raise ConnectionError("the server closed the connection")
    return data[:size]


def read_values(word: bytes) -> Decoder[Words]:
    """Return the words after `word`. Raises greenstalk's exception for another reply."""
    first, *values = yield from _read_words()
    if first == word:
        return values
    if first in greenstalk.ERROR_RESPONSES:
        raise greenstalk.ERROR_RESPONSES[first](values)
    raise greenstalk.UnknownResponseError(first, values)


def read_nothing(word: bytes) -> Decoder[None]:
    """Check that the reply is `word`, with or without values."""
    yield from read_values(word)


def read_number(word: bytes) -> Decoder[int]:
    (value,) = yield from read_values(word)
    return int(value)


def read_put_with_options() -> Decoder[int]:
    """Read the replies to `with` and to the put after it. Raises the error of the first."""
    refused = None
    try:
        yield from read_nothing(b"WITH")
    except greenstalk.BeanstalkdError as error:
        refused = error
    number = yield from read_number(b"INSERTED")
    if refused is not None:
        raise refused
    return number


def read_name(word: bytes) -> Decoder[str]:
    (value,) = yield from read_values(word)
    return value.decode("ascii")


def read_job(word: bytes, decode: DecodeBody[TBody]) -> Decoder[greenstalk.Job[TBody]]:
    job_id, size = yield from read_values(word)
    body = yield from _read_chunk(int(size))
    return greenstalk.Job(int(job_id), decode(body))


def read_batch(decode: DecodeBody[TBody]) -> Decoder[list[BatchJob[TBody]]]:
    count = yield from read_number(b"BATCH")
    jobs: list[BatchJob[TBody]] = []
    for _ in range(count):
        job_id, tube, size = yield from read_values(b"JOB")
        body = yield from _read_chunk(int(size))
        jobs.append(BatchJob(int(job_id), decode(body), tube.decode("ascii")))
    return jobs


def _read_yaml() -> Decoder[list[str]]:
    """Return the lines of a YAML reply after its first one."""
    size = yield from read_number(b"OK")
    text = yield from _read_chunk(size)
    return text.decode().splitlines()[1:]


def read_list() -> Decoder[list[str]]:
    lines = yield from _read_yaml()
    return [line.removeprefix("- ") for line in lines]


def read_statistics(keys: Mapping[str, object]) -> Decoder[dict[str, int | str]]:
    """Return keys and values of a YAML dictionary; `keys` has the type of each known key."""
    lines = yield from _read_yaml()
    pairs = (line.split(": ", 1) for line in lines)
    return {key: _statistic(value, keys.get(key)) for key, value in pairs}


def _statistic(value: str, kind: object) -> int | str:
    # A known key has its type, because the name of a tube 007 is not a number.
    if kind is int or (kind is None and value.isdecimal()):
        return int(value)
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value


def read_features() -> Decoder[frozenset[str]]:
    """Return the extensions of a server; none for C beanstalkd, which lacks the command."""
    try:
        names = yield from read_list()
    except greenstalk.UnknownCommandError:
        return frozenset()
    return frozenset(names)


def read_end() -> Decoder[JobEnd]:
    """Return the result of `wait`, for which BURIED is no error."""
    try:
        yield from read_nothing(b"DELETED")
    except greenstalk.BuriedError:
        return "buried"
    return "deleted"


def read_page() -> Decoder[JobPage]:
    _, *rows, last = yield from _read_yaml()
    return JobPage([listed_job(row) for row in rows], int(last.removeprefix("next: ")))


def listed_job(row: str) -> ListedJob:
    pairs = (pair.split(": ") for pair in row.removeprefix("- {").removesuffix("}").split(", "))
    values = {key.replace("-", "_"): value for key, value in pairs}
    state = values.pop("state")
    numbers = {key: int(value) for key, value in values.items() if key in _NUMBERS}
    return ListedJob(state=state, **numbers)


# Other fields are those of a later server.
_NUMBERS = frozenset(ListedJob.__slots__) - {"state"}


def body_decoder(encoding: str | None) -> DecodeBody[TBody]:
    """Return the function that converts bytes to a client's type of body."""

    def decode(body: bytes) -> TBody:
        return cast(TBody, body if encoding is None else body.decode(encoding))

    return decode
