"""Reads the messages of a stream in order, by pull requests to a consumer of its own.

`fetch` of nats-py makes a task for each message, which costs more than all else that a standby does
with a small message. It cannot limit the bytes of a request either, and NATS closes connections
that do not read as fast as it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

CONSUMER_S = 30.0
"""How long NATS keeps a consumer that does not read."""
READ_MESSAGES = 1024
READ_BYTES = 8_388_593
"""A prime number: NATS does not report the end of a request whose bytes fit exactly. Those of
different messages rarely do; such a request ends by the time limit."""
NO_MESSAGES, NO_RESPONDERS = "404", "503"
RETRY_S = 0.02


class StreamReader:
    """A consumer of a stream. `after` is the sequence of the last message that `read` returned.

    Messages arrive in the order of the stream, and those of a request before the report of its end.
    """

    after: int

    def __init__(self, client: Client, stream: str, consumer: str, after: int) -> None:
        self.after = after
        self._client = client
        self._requests = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._number = 0
        self._subscription: Subscription | None = None
        self._arrived: list[Msg] = []
        self._missing = 0
        """Messages of the last request that may still arrive."""
        self._is_answered = asyncio.Event()
        self._status = ""
        self._is_known = False
        """Whether the consumer has answered."""
        self._used_mono = time.monotonic()

    @classmethod
    async def create(
        cls, client: Client, jetstream: JetStreamContext, stream: str, subject: str, after: int
    ) -> StreamReader:
        """Begin to read message after + 1. Raises errors of nats-py, as `read`."""
        config = ConsumerConfig(
            name=uuid.uuid4().hex,
            filter_subject=subject,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=CONSUMER_S,
            mem_storage=True,
            num_replicas=1,
        )
        consumer = await jetstream.add_consumer(stream, config)
        reader = cls(client, stream, consumer.name, after)
        reader._subscription = await client.subscribe(f"{reader._inbox}.*", cb=reader._receive)
        return reader

    @property
    def is_idle(self) -> bool:
        """Whether NATS may have removed the consumer."""
        return time.monotonic() - self._used_mono > CONSUMER_S / 2

    async def read(self, most: int, limit_s: float) -> list[Msg]:
        """Return the next messages, at most `most`: those that arrive in time.

        Raises nats.errors.Error if there is none. The server that has the consumer may lag.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._arrive(most)
        found, self._arrived = self._arrived[:most], self._arrived[most:]
        if not found:
            raise nats.errors.Error(f"a consumer sends nothing: status {self._status}")
        self.after += len(found)
        return found

    async def _arrive(self, most: int) -> None:
        """Wait for messages: those of the last request that are left, or of a new one."""
        while True:
            if self._missing == 0 and not self._arrived:
                await self._request(min(most, READ_MESSAGES))
            await self._is_answered.wait()
            # The servers do not know a new consumer at once, and that of the consumer may lag.
            is_early = self._status == NO_MESSAGES or not self._is_known
            if self._arrived or not is_early:
                return
            await asyncio.sleep(RETRY_S)

    async def _request(self, count: int) -> None:
        self._number += 1
        self._missing, self._status = count, "no answer"
        self._used_mono = time.monotonic()
        self._is_answered.clear()
        request = {"batch": count, "max_bytes": READ_BYTES, "no_wait": True}
        inbox = f"{self._inbox}.{self._number}"
        await self._client.publish(self._requests, json.dumps(request).encode(), inbox)

    async def _receive(self, message: Msg) -> None:
        status = (message.headers or {}).get("Status")
        self._is_known = self._is_known or status != NO_RESPONDERS
        if status is None:
            self._arrived.append(message)
            self._missing -= 1
        elif message.subject == f"{self._inbox}.{self._number}":
            # There are no more messages or bytes for the request, or the consumer has gone.
            self._status, self._missing = status, 0
        if self._missing == 0:
            self._is_answered.set()

    async def close(self) -> None:
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()
