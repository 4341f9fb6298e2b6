"""Reads the messages of a stream in order, by pull requests to a consumer of its own.

`fetch` of nats-py makes a task for each message, which costs more than all else that a standby does
with a small message. It cannot limit the bytes of a request either, and NATS closes connections
that do not read as fast as it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

from beanstalkd_py.quantities import NS_PER_S

CONSUMER_S = 30.0
"""How long NATS keeps a consumer that does not read."""
READ_MESSAGES = 1024
READ_BYTES = 8 * 1024 * 1024


class StreamReader:
    """A consumer of a stream. `after` is the sequence of the last message that `read` returned."""

    after: int

    def __init__(self, client: Client, stream: str, consumer: str, after: int) -> None:
        self.after = after
        self._client = client
        self._requests = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._arrived: list[Msg] = []
        self._missing = 0
        """Messages of the last request that have not arrived."""
        self._is_answered = asyncio.Event()
        self._status = "no answer"

    @classmethod
    async def create(
        cls, client: Client, jetstream: JetStreamContext, stream: str, after: int
    ) -> StreamReader:
        """Begin to read message after + 1. Raises errors of nats-py, as `read`."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=CONSUMER_S,
            mem_storage=True,
            num_replicas=1,
        )
        consumer = await jetstream.add_consumer(stream, config)
        reader = cls(client, stream, consumer.name, after)
        reader._subscription = await client.subscribe(reader._inbox, cb=reader._receive)
        return reader

    async def read(self, most: int, limit_s: float) -> list[Msg]:
        """Return the next messages, which exist: up to `most`, or those that arrive in time.

        Raises nats.errors.Error if there is none.
        """
        if self._missing == 0:
            self._missing = min(most, READ_MESSAGES)
            self._is_answered.clear()
            request = {"batch": self._missing, "max_bytes": READ_BYTES}
            values = {**request, "expires": int(limit_s * NS_PER_S)}
            await self._client.publish(self._requests, json.dumps(values).encode(), self._inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._is_answered.wait()
        arrived, self._arrived = self._arrived, []
        if not arrived:
            raise nats.errors.Error(f"a consumer sends nothing: {self._status}")
        self.after += len(arrived)
        return arrived

    async def _receive(self, message: Msg) -> None:
        status = (message.headers or {}).get("Status")
        if status is None:
            self._arrived.append(message)
            self._missing -= 1
        else:
            # The request has expired, its bytes are used up, or the consumer has gone.
            self._status = f"{status} {(message.headers or {}).get('Description', '')}"
            self._missing = 0
        if self._missing == 0:
            self._is_answered.set()

    async def close(self) -> None:
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()
