"""The replicated log: NATS JetStream through nats-py.

Only nats_connection and stream_reader import nats, too.

Another log could take its place: it appends a batch behind an expected sequence, reads, purges, and
has a key that changes by compare-and-swap.

A log without a quorum raises LogUnavailableError, and the caller repeats the call. The outcome of
an append or a change is unknown then: the caller reads before it repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import (
    DiscardPolicy,
    RawStreamMsg,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.kv import KeyValue

from beanstalkd_py import errors
from beanstalkd_py.replication.folder_copy import CopyState
from beanstalkd_py.replication.nats_connection import connect
from beanstalkd_py.replication.piece import MOST_BYTES, Piece, PieceError, decode_all
from beanstalkd_py.replication.stream_reader import StreamReader
from beanstalkd_py.replication.target import Target

TIMEOUT_S = 2.0
"""The limit of one request; the leader of a stream answers in milliseconds."""
HEADER_BYTES = 4096
"""More than the headers of a message."""
WRONG_SEQUENCE = (10071, 10164)
"""Error codes of nats-server for an append or change that expected another sequence."""
PASSING = (10002, 10005)
"""Error codes of states that end without this server: the account has no space left, and too few
nats-servers are connected for a new stream."""

RESIGNED = "resigned"
"""The signal of a primary that has given up its lease."""
JOINED = "joined"
"""The signal of a server that has reported for the first time."""
FAILOVER = "failover"
"""The signal that asks a primary to do so."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LEASE = "lease"
CONFIGURATION = "configuration"
SERVER_PREFIX = "server"


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


class LogUnavailableError(errors.ReplicationError):
    """The log does not answer, or has no quorum; the outcome of a change is unknown."""


class WrongSequenceError(errors.ReplicationError):
    """Something else was appended or written before; nothing has changed."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How to connect, and how many servers have a copy of each stream when they are created."""

    credentials: str | None = None
    ca: str | None = None
    replicas: int = 3


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """The sequences of the first and the last message of a stream; `last` counts purged ones.

    `size` is that of all messages, in bytes.
    """

    first: int
    last: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """The value of a key, and its revision, which rises with every change of any key."""

    value: dict[str, Any]
    revision: int

    def decode(self, kind: type[Value]) -> Value:
        """Return the value as a dataclass, without fields of later versions. Raises TypeError."""
        names = {field.name for field in fields(kind)}
        return kind(**{name: one for name, one in self.value.items() if name in names})


@contextlib.asynccontextmanager
async def _translated(*, may_refuse: bool = True) -> AsyncIterator[None]:
    """Without `may_refuse` every refusal counts as unavailable, such as that of a full stream."""
    try:
        yield
    except nats.js.errors.KeyWrongLastSequenceError as error:
        raise WrongSequenceError(str(error)) from error
    except nats.js.errors.APIError as error:
        if error.err_code in WRONG_SEQUENCE:
            raise WrongSequenceError(str(error)) from error
        is_refused = error.code is not None and error.code < 500
        if may_refuse and is_refused and error.err_code not in PASSING:
            raise errors.ReplicationError(f"NATS refuses a request: {error.description}") from error
        raise LogUnavailableError(f"NATS: {error.description}") from error
    except nats.errors.ConnectionClosedError as error:
        # nats-py does not reconnect after some errors.
        text = "NATS has closed the connection for good, as it does when credentials expire"
        raise errors.ReplicationError(text) from error
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise LogUnavailableError(f"NATS: {str(error) or type(error).__name__}") from error


class Log:
    """A connection to the log of one replicated queue. Belongs to one asyncio loop."""

    def __init__(self, client: Client, target: Target, options: LogOptions) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=TIMEOUT_S)
        self._target = target
        self._options = options
        self._keys: KeyValue | None = None
        self._readers: dict[int, StreamReader] = {}

    @classmethod
    async def connect(cls, target: Target, options: LogOptions) -> Log:
        """Connect, and reconnect from then on. Raises ReplicationError, LogUnavailableError."""
        async with _translated():
            client = await connect(target, options.credentials, options.ca)
        if client.max_payload < MOST_BYTES + HEADER_BYTES:
            raise errors.ReplicationError(
                f"NATS accepts messages of {client.max_payload} bytes only; set max_payload to at"
                f" least {MOST_BYTES + HEADER_BYTES}"
            )
        return cls(client, target, options)

    async def close(self) -> None:
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await asyncio.wait_for(self._client.close(), TIMEOUT_S)

    # --- streams ------------------------------------------------------------------------------

    async def create(self, workers: int) -> None:
        """Create the bucket and the streams that do not exist, and check all settings.

        Raises as `check_settings`.
        """
        async with _translated():
            for worker in range(workers):
                await self._create_stream(worker)
            try:
                await self._jetstream.key_value(self._target.bucket)
            except nats.js.errors.NotFoundError:
                await self._jetstream.create_key_value(
                    bucket=self._target.bucket,
                    history=1,
                    replicas=self._options.replicas,
                    storage=StorageType.FILE,
                )
        await self.check_settings(workers)

    async def check_settings(self, workers: int) -> int:
        """Return the smallest number of copies of the bucket and the streams.

        Raises ReplicationError if their settings would lose something.
        """
        bucket = f"KV_{self._target.bucket}"
        copies = []
        for name in (bucket, *map(self._target.stream, range(workers))):
            async with _translated():
                found = (await self._jetstream.stream_info(name)).config
            copies.append(found.num_replicas or 1)
            faults = {
                "max_age": not found.max_age,
                "num_replicas": copies[-1] >= self._options.replicas,
            }
            if name == bucket:
                # A full bucket would refuse the lease to all servers.
                is_limited = (found.max_bytes or -1) >= 0
                faults |= {"allow_direct": not found.allow_direct, "max_bytes": not is_limited}
            else:
                faults |= {
                    "retention": found.retention == RetentionPolicy.LIMITS,
                    "discard": found.discard == DiscardPolicy.NEW,
                    "storage": found.storage == StorageType.FILE,
                    "max_msgs": (found.max_msgs or -1) < 0,
                    "max_msgs_per_subject": (found.max_msgs_per_subject or -1) < 0,
                    "deny_delete": bool(found.deny_delete),
                }
            _check_settings(name, faults)
        return min(copies)

    async def _create_stream(self, worker: int) -> None:
        wanted = StreamConfig(
            name=self._target.stream(worker),
            subjects=[self._target.subject(worker)],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.NEW,
            storage=StorageType.FILE,
            num_replicas=self._options.replicas,
            deny_delete=True,
            max_msgs=-1,
            max_bytes=-1,
            max_age=0,
        )
        try:
            await self._jetstream.stream_info(self._target.stream(worker))
        except nats.js.errors.NotFoundError:
            await self._jetstream.add_stream(wanted)

    async def ends(self, worker: int) -> StreamEnds:
        """Return the ends of a stream, as its leader knows them."""
        async with _translated():
            state = (await self._jetstream.stream_info(self._target.stream(worker))).state
        return StreamEnds(state.first_seq, state.last_seq, state.bytes)

    async def append(self, worker: int, pieces: Sequence[Piece], expected: int) -> None:
        """Append pieces behind message `expected`, and return when all of them are stored.

        Raises WrongSequenceError or LogUnavailableError; any number of them may be stored then.
        """
        subject = self._target.subject(worker)
        # Not publish_async, which loses errors in nats-py 2.16. The order is that of the calls.
        requests = [
            self._jetstream.publish(
                subject,
                piece.encode(),
                headers={"Nats-Expected-Last-Sequence": str(number)},
            )
            for number, piece in enumerate(pieces, expected)
        ]
        async with _translated(may_refuse=False):
            results = await asyncio.gather(*requests, return_exceptions=True)
            for number, result in enumerate(results, expected + 1):
                if isinstance(result, BaseException):
                    raise result
                if result.seq != number or result.duplicate:
                    raise errors.ReplicationError(
                        f"NATS stored message {number} of {self._target.stream(worker)} as"
                        f" {result.seq}"
                    )

    async def read(
        self, worker: int, after: int, last: int, state: CopyState
    ) -> list[tuple[int, Piece]]:
        """Return messages after + 1, after + 2 and so on, at most up to `last`.

        `last` must exist. `state` is that of a copy up to `after`, or to an earlier message if
        the stream does not have those in between. Raises LogUnavailableError also if message
        after + 1 was purged, and PieceError if the first one is damaged or does not continue
        `state`.
        """
        reader = self._readers.pop(worker, None)
        async with _translated():
            if reader is None or reader.after != after or reader.is_idle:
                if reader is not None:
                    await reader.close()
                names = self._target.stream(worker), self._target.subject(worker)
                reader = await StreamReader.create(self._client, self._jetstream, *names, after)
            try:
                messages = await reader.read(last - after, TIMEOUT_S)
            except BaseException:
                await reader.close()
                raise
        sequences = [message.metadata.sequence.stream for message in messages]
        # NATS acknowledges nothing for us, so a lost connection loses messages; and a server that
        # starts again begins a consumer again. Neither may look like a purge.
        if sequences != list(range(after + 1, after + 1 + len(messages))):
            await reader.close()
            raise LogUnavailableError("NATS: a consumer lost its place")
        self._readers[worker] = reader
        try:
            pieces = decode_all((one.data for one in messages), state.epoch, state.position)
        except PieceError as error:
            text = f"message {after + 1} of stream {self._target.stream(worker)}: {error}"
            raise PieceError(text) from error
        return list(zip(sequences, pieces, strict=False))

    async def read_one(self, worker: int, sequence: int) -> bytes | None:
        """Return one message, as the stream's leader has it; None if it has none of this number."""
        async with _translated():
            try:
                found = await self._jetstream.get_msg(self._target.stream(worker), sequence)
            except nats.js.errors.NotFoundError:
                return None
        return found.data or b""

    async def stored_ns(self, worker: int, sequence: int) -> int:
        """Return when NATS has stored a message, by its clock; 0 if it was purged."""
        async with _translated():
            try:
                found = await self._jetstream.get_msg(self._target.stream(worker), sequence)
            except nats.js.errors.NotFoundError:
                return 0
        return _nanoseconds(found)

    async def purge(self, worker: int, before: int) -> None:
        """Remove the messages before this sequence, which is above 1.

        With 0 and 1 nats-server removes all messages, and repeats that with later messages at a
        start after a kill (2.10.25 and 2.12.8).
        """
        assert before > 1
        async with _translated():
            await self._jetstream.purge_stream(self._target.stream(worker), seq=before)

    # --- signals ------------------------------------------------------------------------------

    async def listen(self, signal: str, received: Callable[[], object]) -> None:
        """Call `received` for each `tell` and `ask` from now on. NATS may lose some."""

        async def answer(message: Msg) -> None:
            received()
            if message.reply:
                await message.respond(b"")

        async with _translated():
            await self._client.subscribe(self._target.signal(signal), cb=answer)

    async def tell(self, signal: str) -> None:
        """Send a signal to all who listen."""
        async with _translated():
            await self._client.publish(self._target.signal(signal))
            await self._client.flush(int(TIMEOUT_S))

    async def ask(self, signal: str) -> bool:
        """Send a signal; return whether somebody has received it."""
        async with _translated():
            try:
                await self._client.request(self._target.signal(signal), timeout=TIMEOUT_S)
            except nats.errors.NoRespondersError:
                return False
        return True

    # --- keys ---------------------------------------------------------------------------------

    async def get(self, key: str) -> Record | None:
        """Return the value of a key, as the bucket's leader has it."""
        async with _translated():
            try:
                entry = await (await self._bucket()).get(key)
            except nats.js.errors.KeyNotFoundError:
                return None
        return Record(json.loads(entry.value or b"{}"), entry.revision or 0)

    async def put(self, key: str, value: dict[str, Any], revision: int) -> int:
        """Write a key that has this revision, 0 for a new key; return the new revision."""
        async with _translated():
            data = json.dumps(value).encode()
            return await (await self._bucket()).update(key, data, last=revision)

    async def report(self, key: str, value: dict[str, Any]) -> None:
        """Write a key that only this server writes."""
        async with _translated():
            await (await self._bucket()).put(key, json.dumps(value).encode())

    async def changed_ns(self, key: str) -> int:
        """Return when a key, which exists, was changed the last time."""
        bucket = self._target.bucket
        async with _translated():
            subject = f"$KV.{bucket}.{key}"
            return _nanoseconds(await self._jetstream.get_msg(f"KV_{bucket}", subject=subject))

    async def delete(self, key: str, revision: int) -> None:
        """Remove a key that has this revision."""
        async with _translated():
            await (await self._bucket()).delete(key, last=revision)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix and a dot, also those that are removed."""
        bucket = f"$KV.{self._target.bucket}."
        async with _translated():
            name = f"KV_{self._target.bucket}"
            found = await self._jetstream.stream_info(name, f"{bucket}{prefix}.>")
        return sorted(subject.removeprefix(bucket) for subject in found.state.subjects or ())

    async def _bucket(self) -> KeyValue:
        if self._keys is None:
            try:
                self._keys = await self._jetstream.key_value(self._target.bucket)
            except nats.js.errors.BucketNotFoundError as error:
                text = f"NATS has no bucket {self._target.bucket}: no server has begun this queue"
                raise LogUnavailableError(text) from error
        return self._keys


def _nanoseconds(message: RawStreamMsg) -> int:
    assert message.time is not None
    return (message.time - EPOCH) // timedelta(microseconds=1) * 1000


def _check_settings(stream: str, faults: Mapping[str, bool]) -> None:
    wrong = [name for name, is_right in faults.items() if not is_right]
    if wrong:
        raise errors.ReplicationError(
            f"stream {stream} has settings that can lose jobs: {', '.join(wrong)}; correct them, or"
            " use another name and let the server create the stream"
        )
