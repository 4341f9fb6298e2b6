"""One reserve of a session that watches tubes of several shards, from the command to its reply.

The home worker requests the best job (the head) of every shard concerned, and claims one at the
shard with the best head. If another session gets that job first, it starts again. If no shard has
a job, it waits at all of them, takes the first claim and cancels the others. Only the shard that
has a job sends it to the client, after the claim is decided. So no job is delivered twice, and none
is lost between a claim and its cancellation.

If the only shard concerned is remote, that shard executes the whole reserve.

    HEADS ----> CLAIMING ----> done            (lost: HEADS again)
      |
      v
    WAITING --> TAKING ------> done            (lost: HEADS again)
    REMOTE ---> CANCELLING --> done            (CANCELLING after the timeout)

A reserve skips a shard without a worker, and waits there again when the worker is back. This module
does no I/O: it calls `Shards`, and gets events by its on_ methods.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from beanstalkd_py.core.clocks import NEVER
from beanstalkd_py.core.coordination import Head, Outcome

TIMED_OUT = b"TIMED_OUT\r\n"
DEADLINE_SOON = b"DEADLINE_SOON\r\n"
INTERNAL_ERROR = b"INTERNAL_ERROR\r\n"

STRICT_TRIES = 2
"""Claims of one reserve that accept only a job better than the heads of the other shards."""
WORST_PRIORITY = 2**32 - 1


class Shards(Protocol):
    """The requests of a reserve. Each shard executes and answers them in order."""

    home: int
    """The shard of the worker that has the connection."""

    def is_up(self, shard: int) -> bool:
        """Return whether the shard has a worker now."""

    def head(self, shard: int, session: int, token: int) -> None:
        """Request the best job; the response is on_head."""

    def claim(self, shard: int, session: int, token: int, pri: int) -> None:
        """Reserve the best job if its priority is `pri` or better: on_done or on_lost."""

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        """Claim a job now or when there is one: on_waited."""

    def take(self, shard: int, session: int, token: int) -> None:
        """Reply with the claimed job: on_done or on_lost."""

    def cancel(self, shard: int, session: int, token: int) -> None:
        """Stop waiting and put a claimed job back: on_cancelled, from remote shards."""

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        """Execute the whole reserve, without waiting if `poll`: on_done."""

    def answer(self, session: int, reply: bytes) -> None:
        """Send the reply; the reserve is over."""

    def withdraw(self, session: int) -> None:
        """Expect no reply from the shard of the last request."""


class Phase(enum.Enum):
    HEADS = enum.auto()
    CLAIMING = enum.auto()
    WAITING = enum.auto()
    TAKING = enum.auto()
    REMOTE = enum.auto()
    CANCELLING = enum.auto()
    DONE = enum.auto()


class MultiShardReserve:
    """`until` is monotonic nanoseconds, NEVER for a reserve without a timeout."""

    def __init__(
        self,
        shards: Shards,
        session: int,
        concerned: list[int],
        until: int,
        now_mono: Callable[[], int],
        next_token: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._session = session
        self._concerned = concerned
        self._until = until
        self._now_mono = now_mono
        self._next_token = next_token
        self._token = 0
        self._asked = -1
        self._polls = False
        self._tries = 0
        self.heads_requested_mono = 0
        self._heads: dict[int, Head] = {}
        self._pending: set[int] = set()
        self.phase = Phase.HEADS

    @property
    def done(self) -> bool:
        """Whether the client has its reply, or a shard will send it."""
        return self.phase is Phase.DONE

    def start(self) -> None:
        if len(self._concerned) == 1 and self._concerned[0] != self._shards.home:
            self._reserve_remotely(self._concerned[0])
        else:
            self._request_heads()

    # --- one remote shard executes the reserve --------------------------------------------------

    def _reserve_remotely(self, shard: int) -> None:
        self.phase = Phase.REMOTE
        self._token = self._next_token()
        self._asked = shard
        self._polls = self._until <= self._now_mono()
        if self._shards.is_up(shard):
            self._shards.reserve(shard, self._session, self._token, self._polls)
        elif self._polls:
            self._answer(INTERNAL_ERROR)
            return
        if not self._polls:
            # For the timeout, and to detect that the client has closed its side.
            self._shards.wait(self._shards.home, self._session, self._token, self._until)

    def _remote_timeout(self) -> None:
        if self._shards.is_up(self._asked):
            self.phase = Phase.CANCELLING
            self._shards.cancel(self._asked, self._session, self._token)
        else:
            self._answer(TIMED_OUT)

    def on_cancelled(self, shard: int, token: int, stopped: bool) -> None:
        """A shard has executed a cancel; without `stopped`, its reply came first."""
        if self.phase is Phase.CANCELLING and token == self._token and stopped:
            self._shards.withdraw(self._session)
            self._answer(TIMED_OUT)

    # --- the best job of several shards ---------------------------------------------------------

    def _request_heads(self) -> None:
        self.phase = Phase.HEADS
        self.heads_requested_mono = self._now_mono()
        self._token = self._next_token()
        self._heads = {}
        self._pending = {shard for shard in self._concerned if self._shards.is_up(shard)}
        for shard in sorted(self._pending):
            self._shards.head(shard, self._session, self._token)
        if not self._pending:
            self._all_heads_known()

    def on_head(self, shard: int, token: int, head: Head) -> None:
        if self.phase is not Phase.HEADS or token != self._token:
            return
        self._heads[shard] = head
        self._pending.discard(shard)
        if not self._pending:
            self._all_heads_known()

    def _all_heads_known(self) -> None:
        heads = self._heads.values()
        soon = any(head.soon for head in heads)
        best = min(
            ((head.pri, head.id, shard) for shard, head in self._heads.items() if head.ready),
            default=None,
        )
        if soon and not any(head.any for head in heads):
            self._answer(DEADLINE_SOON)
        elif best is not None:
            self.phase = Phase.CLAIMING
            self._asked = best[-1]
            self._shards.claim(self._asked, self._session, self._token, self._priority_limit())
        elif soon:
            self._answer(DEADLINE_SOON)
        elif self._until <= self._now_mono():
            self._answer(TIMED_OUT)
        else:
            self._wait_at_all()

    def _priority_limit(self) -> int:
        """Return the worst priority to accept if another session gets the head first.

        The next job of the same shard will do if no other shard has a better one. After
        STRICT_TRIES any job will do, because many concurrent reserves would retry for long.
        """
        self._tries += 1
        others = [h.pri for shard, h in self._heads.items() if h.ready and shard != self._asked]
        return min(others) if others and self._tries <= STRICT_TRIES else WORST_PRIORITY

    def on_slow(self) -> None:
        """Continue without the heads that have not arrived."""
        if self.phase is Phase.HEADS:
            self._pending.clear()
            self._all_heads_known()

    # --- waiting --------------------------------------------------------------------------------

    def _wait_at_all(self) -> None:
        self.phase = Phase.WAITING
        self._pending = {self._shards.home}
        for shard in self._concerned:
            if shard != self._shards.home and self._shards.is_up(shard):
                self._pending.add(shard)
                self._shards.wait(shard, self._session, self._token, NEVER)
        # The home worker has the timeout, even if the session watches none of its tubes.
        self._shards.wait(self._shards.home, self._session, self._token, self._until)

    def on_waited(self, shard: int, token: int, outcome: Outcome) -> None:
        if token != self._token:
            return
        if self.phase is Phase.REMOTE and outcome is Outcome.TIMED_OUT:
            self._remote_timeout()
        if self.phase is not Phase.WAITING:
            return
        for other in sorted(self._pending - {shard}):
            self._shards.cancel(other, self._session, token)
        if outcome is Outcome.JOB:
            self.phase = Phase.TAKING
            self._asked = shard
            self._shards.take(shard, self._session, token)
        else:
            self._answer(TIMED_OUT if outcome is Outcome.TIMED_OUT else DEADLINE_SOON)

    # --- the end --------------------------------------------------------------------------------

    def on_lost(self, shard: int, token: int) -> None:
        """Another session got the job first."""
        if self.phase in (Phase.CLAIMING, Phase.TAKING) and token == self._token:
            self._shards.withdraw(self._session)
            self._request_heads()

    def on_done(self) -> None:
        self.phase = Phase.DONE

    def _answer(self, reply: bytes) -> None:
        self.phase = Phase.DONE
        self._shards.answer(self._session, reply)

    # --- workers end and restart ----------------------------------------------------------------

    def on_down(self, shard: int) -> None:
        self._pending.discard(shard)
        self._heads.pop(shard, None)
        if self.phase is Phase.HEADS:
            if not self._pending:
                self._all_heads_known()
        elif shard != self._asked:
            return
        elif self.phase in (Phase.CLAIMING, Phase.TAKING):
            self._request_heads()
        elif self.phase is Phase.CANCELLING:
            self._answer(TIMED_OUT)
        elif self.phase is Phase.REMOTE and self._polls:
            self._answer(INTERNAL_ERROR)  # a poll has no timeout at the home worker

    def on_up(self, shard: int) -> None:
        if shard not in self._concerned:
            return
        if self.phase is Phase.REMOTE:
            self._shards.reserve(shard, self._session, self._token, False)
        elif self.phase is Phase.WAITING:
            self._pending.add(shard)
            self._shards.wait(shard, self._session, self._token, NEVER)
