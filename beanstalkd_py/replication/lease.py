"""The lease: a key that the primary renews, and that another server takes when it is not renewed.

The lease only decides who should serve. Even if two servers believed that they hold it, only one
could append to the streams.

    L1  The lease of a primary ends before another server can have seen it unchanged for the whole
        duration: the primary counts from before it sends a renewal, the other from its arrival.
    L2  A server takes the lease only if the log has answered all the time. Otherwise the primary
        may have been unable to renew it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from beanstalkd_py import errors
from beanstalkd_py.quantities import NS_PER_S
from beanstalkd_py.replication.log import (
    LEASE,
    LogUnavailableError,
    Record,
    WrongSequenceError,
)

GAP_S = 3.0
"""The longest time between two looks at the lease that still counts as all the time (L2)."""
MARGIN_S = 1.0
"""How much earlier a primary stops: workers look at the lease once per round."""


class Keys(Protocol):
    """The part of Log that a lease needs."""

    async def get(self, key: str) -> Record | None: ...
    async def put(self, key: str, value: dict[str, Any], revision: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Holder:
    """The value of the lease. `node` is a process; empty after the holder has given it up.

    `address` and `tls_address` are where clients reach it, HOST:PORT; the latter is empty if it
    does not serve TLS. `epoch` is the revision at which it was taken, 0 in the value that takes it.
    `failovers` is how often it was taken after the first time.
    """

    node: str
    address: str
    epoch: int = 0
    duration_s: float = 0.0
    tls_address: str = ""
    failovers: int = 0


def boot_ns() -> int:
    """Return the time since the boot, with the time that the machine was suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lease:
    """The lease as this server sees it. `holder` is the last one that was read, None for nobody."""

    def __init__(
        self, keys: Keys, node: str, address: str, duration_s: float, tls_address: str = ""
    ) -> None:
        self._keys = keys
        self._node = node
        self.address = address
        self._tls_address = tls_address
        self.duration_s = duration_s
        self._revision = 0
        self._unchanged_since_ns = 0
        self._observed_ns = 0
        self.holder: Holder | None = None
        self.primary_changed: Callable[[Holder | None], None] = lambda primary: None
        """Called with the new `other_primary` when that is another process."""
        self.epoch = 0
        """The epoch of this server as the primary, else 0."""
        self.failovers = 0
        """How often servers have become the primary, up to that epoch."""
        self.end_ns = 0
        """When its lease ends (boot_ns)."""

    @property
    def has_ended(self) -> bool:
        return boot_ns() > self.end_ns

    @property
    def other_primary(self) -> Holder | None:
        """The primary, None for nobody or this server: after a restart, its previous process."""
        holder = self.holder
        return None if holder is None or holder.address in ("", self.address) else holder

    async def observe(self) -> bool:
        """Read the lease; return whether it may be taken. Raises LogUnavailableError."""
        began_ns = boot_ns()
        try:
            record = await self._keys.get(LEASE)
        except LogUnavailableError:
            self._unchanged_since_ns = 0  # L2
            raise
        revision = record.revision if record is not None else 0
        is_late = began_ns - self._observed_ns > GAP_S * NS_PER_S
        self._observed_ns = boot_ns()
        if revision != self._revision or self._unchanged_since_ns == 0 or is_late:
            self._revision = revision
            self._unchanged_since_ns = boot_ns()
            previous = self.other_primary
            self.holder = None if record is None else record.decode(Holder)
            if _node(self.other_primary) != _node(previous):
                self.primary_changed(self.other_primary)
        # This server's own is a taking whose outcome it did not learn.
        if self.holder is None or self.holder.node in ("", self._node):
            return True
        # The duration of the holder counts, because options of servers may differ.
        wait_s = max(self.holder.duration_s, self.duration_s)
        return began_ns - self._unchanged_since_ns >= wait_s * NS_PER_S

    async def take(self) -> bool:
        """Take the lease as it was observed; return False if another server was faster."""
        began_ns = boot_ns()
        if self.holder is not None:
            is_own = self.holder.node == self._node  # an attempt of unknown outcome has taken it
            self.failovers = self.holder.failovers + (0 if is_own else 1)
        try:
            revision = await self._write(self._holder())
        except WrongSequenceError:
            self._unchanged_since_ns = 0
            return False
        self.epoch = revision
        self._held(revision, began_ns)
        return True

    async def renew(self) -> None:
        """Extend the lease. Raises LogUnavailableError, or ReplicationError if it is lost."""
        began_ns = boot_ns()
        try:
            revision = await self._write(self._holder())
        except WrongSequenceError as error:
            # An earlier renewal of unknown outcome may have arrived.
            record = await self._keys.get(LEASE)
            if record is None or record.decode(Holder).node != self._node:
                raise errors.ReplicationError("another server has taken the lease") from error
            self._revision = record.revision
            return
        self._held(revision, began_ns)

    async def give_up(self) -> None:
        """End the lease, so that another server can take it at once. Raises as `renew`."""
        await self.renew()  # settles a renewal of unknown outcome
        await self._write(replace(self._holder(), node="", address="", tls_address=""))
        self.end_ns = 0

    def _holder(self) -> Holder:
        return Holder(
            self._node,
            self.address,
            self.epoch,
            self.duration_s,
            self._tls_address,
            self.failovers,
        )

    async def _write(self, holder: Holder) -> int:
        return await self._keys.put(LEASE, asdict(holder), self._revision)

    def _held(self, revision: int, began_ns: int) -> None:
        self._revision = revision
        self.end_ns = began_ns + int((self.duration_s - MARGIN_S) * NS_PER_S)


def _node(holder: Holder | None) -> str:
    return "" if holder is None else holder.node
