"""One reserve of a client that watches tubes on several shards, from the command to its reply.

The worker that has the connection (its *home*) asks every shard concerned for its best job, and
claims one at the shard that has the best; someone else may be faster, then it asks again. If no
shard has one it waits at all of them, takes the first claim that comes and puts any other back. A
job is told to the client only by the shard that has it, after the claim is decided: so no job is
given twice, and none is lost between a claim and a put-back.

With one shard, and that another one, asking is left out: the whole reserve is done there.

    HEADS ----> CLAIMING ----> done            (lost: HEADS again)
      |
      v
    WAITING --> TAKING ------> done            (lost: HEADS again)
    ALONE ----> ENDING ------> done            (the only shard does it all; ENDING: its time is up)

A shard that goes down is left out; when it is back, whoever still waits goes on waiting there.
Knows nothing of sockets, frames and clocks: it says what is to be done through `Shards`, and is
told what has happened.
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

CHOOSY_TRIES = 2
WORST_PRIORITY = 2**32 - 1


class Shards(Protocol):
    """What a reserve can have done. A shard is told things in this order, and answers in it."""

    home: int
    """The shard of the worker that has the connection."""

    def is_up(self, shard: int) -> bool:
        """Whether it can be asked now."""

    def head(self, shard: int, session: int, token: int) -> None:
        """Ask for its best job: on_head."""

    def claim(self, shard: int, session: int, token: int, pri: int) -> None:
        """Reserve the best job if its priority is this or better, and answer: on_done, on_lost."""

    def wait(self, shard: int, session: int, token: int, until: int) -> None:
        """Claim a job now or when there is one: on_waited."""

    def take(self, shard: int, session: int, token: int) -> None:
        """Answer with the claimed job: on_done or on_lost."""

    def cancel(self, shard: int, session: int, token: int) -> None:
        """Stop waiting, put back what was claimed: on_cancelled, from other shards than home."""

    def reserve(self, shard: int, session: int, token: int, poll: bool) -> None:
        """Do all of a reserve, without waiting if `poll`: on_done."""

    def answer(self, session: int, reply: bytes) -> None:
        """Give the client this reply; the reserve is over."""

    def withdraw(self, session: int) -> None:
        """No reply will come from the shard that was asked last."""


class Phase(enum.Enum):
    """Where a reserve is."""

    HEADS = enum.auto()
    CLAIMING = enum.auto()
    WAITING = enum.auto()
    TAKING = enum.auto()
    ALONE = enum.auto()
    ENDING = enum.auto()
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
        self.asked_mono = 0
        self._heads: dict[int, Head] = {}
        self._pending: set[int] = set()
        self.phase = Phase.HEADS

    @property
    def done(self) -> bool:
        """Whether the client has its reply, or will have it from a shard."""
        return self.phase is Phase.DONE

    def start(self) -> None:
        """Begins."""
        if len(self._concerned) == 1 and self._concerned[0] != self._shards.home:
            self._go_alone(self._concerned[0])
        else:
            self._ask_for_heads()

    # --- the only shard concerned does it all ---------------------------------------------------

    def _go_alone(self, shard: int) -> None:
        self.phase = Phase.ALONE
        self._token = self._next_token()
        self._asked = shard
        self._polls = self._until <= self._now_mono()
        if self._shards.is_up(shard):
            self._shards.reserve(shard, self._session, self._token, self._polls)
        elif self._polls:
            self._answer(INTERNAL_ERROR)
            return
        if not self._polls:
            # Only for the time, and to notice a client that closes its side.
            self._shards.wait(self._shards.home, self._session, self._token, self._until)

    def _time_is_up_alone(self) -> None:
        if self._shards.is_up(self._asked):
            self.phase = Phase.ENDING
            self._shards.cancel(self._asked, self._session, self._token)
        else:
            self._answer(TIMED_OUT)

    def on_cancelled(self, shard: int, token: int, stopped: bool) -> None:
        """The shard has stopped waiting; if it was not waiting any more its reply is on its way."""
        if self.phase is Phase.ENDING and token == self._token and stopped:
            self._shards.withdraw(self._session)
            self._answer(TIMED_OUT)

    # --- the best of several --------------------------------------------------------------------

    def _ask_for_heads(self) -> None:
        self.phase = Phase.HEADS
        self.asked_mono = self._now_mono()
        self._token = self._next_token()
        self._heads = {}
        self._pending = {shard for shard in self._concerned if self._shards.is_up(shard)}
        for shard in sorted(self._pending):
            self._shards.head(shard, self._session, self._token)
        if not self._pending:
            self._all_heads_known()

    def on_head(self, shard: int, token: int, head: Head) -> None:
        """A shard's best job."""
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
            self._shards.claim(self._asked, self._session, self._token, self._limit())
        elif soon:
            self._answer(DEADLINE_SOON)
        elif self._until <= self._now_mono():
            self._answer(TIMED_OUT)
        else:
            self._wait_at_all()

    def _limit(self) -> int:
        """How bad a priority may be of what that shard has by now.

        Whoever was faster has taken the best job, and the next one of the same shard will do as
        long as no other shard has one of a better priority. Many clients that reserve together
        would ask again and again if each wanted the very best, so after a while any will do.
        """
        self._tries += 1
        others = [h.pri for shard, h in self._heads.items() if h.ready and shard != self._asked]
        return min(others) if others and self._tries <= CHOOSY_TRIES else WORST_PRIORITY

    def on_slow(self) -> None:
        """Some shards have not said for long what they have: it goes on with what is known."""
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
        # Home keeps the time for all, whether it has a tube of this client or not.
        self._shards.wait(self._shards.home, self._session, self._token, self._until)

    def on_waited(self, shard: int, token: int, outcome: Outcome) -> None:
        """A wait has ended."""
        if token != self._token:
            return
        if self.phase is Phase.ALONE and outcome is Outcome.TIMED_OUT:
            self._time_is_up_alone()
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
        """The job that was to be claimed or taken has gone to someone else."""
        if self.phase in (Phase.CLAIMING, Phase.TAKING) and token == self._token:
            self._shards.withdraw(self._session)
            self._ask_for_heads()

    def on_done(self) -> None:
        """The client has its reply from the shard that was asked."""
        self.phase = Phase.DONE

    def _answer(self, reply: bytes) -> None:
        self.phase = Phase.DONE
        self._shards.answer(self._session, reply)

    # --- shards come and go ---------------------------------------------------------------------

    def on_down(self, shard: int) -> None:
        """A shard's worker has gone; its jobs are there again when it is back."""
        self._pending.discard(shard)
        self._heads.pop(shard, None)
        if self.phase is Phase.HEADS:
            if not self._pending:
                self._all_heads_known()
        elif shard != self._asked:
            return
        elif self.phase in (Phase.CLAIMING, Phase.TAKING):
            self._ask_for_heads()
        elif self.phase is Phase.ENDING:
            self._answer(TIMED_OUT)
        elif self.phase is Phase.ALONE and self._polls:
            self._answer(INTERNAL_ERROR)  # it did not wait, so home keeps no time for it

    def on_up(self, shard: int) -> None:
        """It is back, and knows nothing."""
        if shard not in self._concerned:
            return
        if self.phase is Phase.ALONE:
            self._shards.reserve(shard, self._session, self._token, False)
        elif self.phase is Phase.WAITING:
            self._pending.add(shard)
            self._shards.wait(shard, self._session, self._token, NEVER)
