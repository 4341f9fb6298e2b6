"""class Core: one queue with its sessions and binlog, as csrc/api/core.h describes it.

Each method is one call of the C function of the same name, with types, and with an exception
where C returns a negative number. It must not know where its descriptors, bytes and clocks come
from.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.clocks import Now, c_now
from beanstalkd_py.core.connections import Connection, Roles, connection_of
from beanstalkd_py.core.coordination import Head, Migration
from beanstalkd_py.core.events import Event, Trace, event_of
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.step_results import (
    FREE_STATES,
    Compacting,
    CompactStep,
    TruncateStep,
    Truncating,
)

OUTPUT_BYTES = 1 << 16


class Run(enum.IntFlag):
    """What Core.run wants of its caller."""

    EVENTS = lib.BS_RUN_EVENTS
    UPCALLS = lib.BS_RUN_UPCALLS
    MORE = lib.BS_RUN_MORE
    EXTERNAL = lib.BS_RUN_EXTERNAL
    FATAL = lib.BS_RUN_FATAL


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """What a core is told once.

    `file_size` and `max_job_size` are bytes, `sync_interval_ns` is 0 for sync before the reply
    and negative for never. Without `binlog_dir` nothing is written. `worker` is the index of the
    counters and the number of the shard among `workers`; `colocate` ends the part of a tube's name
    that decides its shard. With `history` the binlog has what an archiver needs
    (csrc/binlog/binlog.h).
    """

    binlog_dir: str | None = None
    file_size: int = 10485760
    sync_interval_ns: int = 0
    max_job_size: int = 65535
    worker: int = 0
    workers: int = 1
    colocate: bytes | None = None
    history: bool = False


class Core:
    """One queue. Times default to the clocks at the call; tests pass their own.

    All methods belong to one thread. A method that fails raises CoreError or one of its children
    with the core's own sentence.
    """

    def __init__(self, config: CoreConfig, shared: Any, now: Now | None = None) -> None:
        """Raises MemoryError when memory or descriptors ran out. `shared` is a `bs_shared *`."""
        folder = ffi.NULL
        if config.binlog_dir is not None:
            folder = ffi.new("char[]", os.fsencode(config.binlog_dir))
        c_config = ffi.new("bs_config *")
        c_config.binlog_dir = folder
        c_config.file_size = config.file_size
        c_config.sync_interval_ns = config.sync_interval_ns
        c_config.max_job_size = config.max_job_size
        c_config.worker = config.worker
        c_config.workers = config.workers
        colocate = ffi.NULL if config.colocate is None else ffi.new("char[]", config.colocate)
        c_config.colocate = colocate
        c_config.history = config.history
        self._shared = shared  # must outlive the core
        self._event = ffi.new("bs_event *")
        self._upcall = ffi.new("bs_upcall *")
        self._buffer = ffi.new("char[]", OUTPUT_BYTES)
        self._core = lib.bs_core_new(c_config, shared, c_now(now))
        if self._core == ffi.NULL:
            raise MemoryError("no memory or descriptors for a core")

    # --- life ---------------------------------------------------------------------------------

    def recover(self, now: Now | None = None) -> None:
        """Opens the binlog folder and reads what it holds.

        Raises BinlogLockedError, BinlogFolderError or CoreError.
        """
        self._check(lib.bs_core_recover(self._core, c_now(now)))

    def stop(self) -> None:
        """Writes and syncs what is left and gives up the lock. Raises BinlogWriteError."""
        self._check(lib.bs_core_stop(self._core))

    def close(self) -> None:
        """Frees everything and writes nothing; the core is of no use afterwards."""
        if self._core != ffi.NULL:
            lib.bs_core_free(self._core)
            self._core = ffi.NULL

    @property
    def error(self) -> str:
        """The core's sentence for its last error."""
        return ffi.string(lib.bs_core_error(self._core)).decode("utf-8", "replace")

    # --- the loop -----------------------------------------------------------------------------

    @property
    def fd(self) -> int:
        """The descriptor that is readable when `run` has something to do."""
        return lib.bs_core_fd(self._core)

    def run(self, budget_ns: int, linger: bool) -> int:
        """Runs rounds until Python is wanted or `budget_ns` are over; bits of Run, as a plain int.

        Without `linger` it also returns when nothing is left to do.
        """
        wants: int = lib.bs_core_run(self._core, budget_ns, linger)
        return wants

    def adopt(self, fd: int) -> None:
        """Takes over a connected socket, which the core closes also when this raises."""
        self._check(lib.bs_core_adopt(self._core, fd))

    def adopt_from(self, fd: int) -> None:
        """Takes over every socket that arrives by SCM_RIGHTS on this Unix socket."""
        self._check(lib.bs_core_adopt_from(self._core, fd))

    def watch(self, fd: int) -> None:
        """Makes `run` return with Run.EXTERNAL while this descriptor is readable."""
        self._check(lib.bs_core_watch(self._core, fd))

    def events(self) -> Iterator[Event]:
        """Takes the waiting events one by one."""
        event = self._event
        while lib.bs_core_next_event(self._core, event) == 1:
            yield event_of(event)

    def answer(self, session: int, reply: bytes, now: Now | None = None) -> None:
        """Gives a session the bytes it waits for. One that has gone meanwhile is no error."""
        self._check(lib.bs_core_answer(self._core, session, reply, len(reply), c_now(now)))

    def roles(self) -> Roles:
        """What the connections of all workers were when `stats` was last asked for."""
        producers, workers = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.bs_core_roles(self._core, producers, workers)
        return Roles(producers[0], workers[0])

    # --- sessions without a socket --------------------------------------------------------------

    def open(self, now: Now | None = None) -> int:
        """A new session's number. Raises MemoryError."""
        session = lib.bs_core_open(self._core, c_now(now))
        if session == 0:
            raise MemoryError("no memory for a session")
        return session

    def feed(self, session: int, data: bytes, now: Now | None = None) -> None:
        """Feeds bytes. Raises SessionEndedError."""
        self._check_session(lib.bs_core_feed(self._core, session, data, len(data), c_now(now)))

    def finish(self, session: int, now: Now | None = None) -> None:
        """Says that no more bytes will come. Raises SessionEndedError."""
        self._check_session(lib.bs_core_finish(self._core, session, c_now(now)))

    def output(self, session: int, limit: int | None = None) -> bytes:
        """Output that may leave: all of it, or at most `limit` bytes. Raises SessionEndedError."""
        parts = []
        left = limit if limit is not None else -1
        while left != 0:
            capacity = OUTPUT_BYTES if left < 0 else min(left, OUTPUT_BYTES)
            size = lib.bs_core_output(self._core, session, self._buffer, capacity)
            self._check_session(size)
            if size == 0:
                break
            parts.append(bytes(ffi.buffer(self._buffer, size)))
            left -= size if left > 0 else 0
        return b"".join(parts)

    def end(self, session: int, now: Now | None = None) -> None:
        """Ends a session as a closed connection does. Unknown ones are ignored."""
        lib.bs_core_close(self._core, session, c_now(now))

    def tick(self, now: Now | None = None) -> int:
        """Runs the timers that are due; the monotonic time of the next, 2**63 - 1 without any."""
        return lib.bs_core_tick(self._core, c_now(now))

    def commit(self, now: Now | None = None) -> None:
        """Ends a round: writes, syncs if replies wait for it, lets them go. BinlogWriteError."""
        self._check(lib.bs_core_commit(self._core, c_now(now)))

    # --- other workers --------------------------------------------------------------------------

    def next_upcall(self) -> Any:
        """Return the next `bs_upcall`, valid until the next call, or None."""
        return self._upcall if lib.bs_core_next_upcall(self._core, self._upcall) == 1 else None

    @staticmethod
    def upcall_bytes(upcall: Any) -> bytes:
        """A copy of an upcall's bytes."""
        return bytes(ffi.buffer(upcall.bytes, upcall.length)) if upcall.length else b""

    def read_on(self, now: Now | None = None) -> bool:
        """Goes on with what came behind the frames that were mailed; whether there are new upcalls.

        To be called when all upcalls have been dealt with.
        """
        return bool(lib.bs_core_read_on(self._core, c_now(now)) == 1)

    def add_peer(self, shard: int, fd: int, now: Now | None = None) -> None:
        """Takes over a socket to another worker; the last one to it has been lost before."""
        self._check(lib.bs_core_add_peer(self._core, shard, fd, c_now(now)))

    def lose_peer(self, shard: int, now: Now | None = None) -> None:
        """Closes the socket to another worker and gives back what its sessions have here."""
        lib.bs_core_lose_peer(self._core, shard, c_now(now))

    def send(self, shard: int, frame: bytes, *, session: int = 0, fd: int = -1) -> None:
        """Says a packed frame to another worker, behind all that was said before.

        `session`: the one at home that it is about. Frames of one that has ended, and for a worker
        that is down, are left out. The descriptor is the core's from now on.
        """
        error = lib.bs_core_send(self._core, shard, session, frame, len(frame), fd)
        if error not in (-errno.ENOENT, -errno.ENOTCONN):
            self._check(error)

    def flush(self) -> None:
        """Sends now what has been said to other workers, as far as they take it."""
        lib.bs_core_flush(self._core)

    def proxy(self, peer: int, home: int) -> int:
        """The session that stands for session `home` of worker `peer`; 0 when it has failed."""
        return int(lib.bs_core_proxy(self._core, peer, home))

    def home_of(self, proxy: int) -> int:
        """Whom a proxy stands for; 0 if it has ended."""
        return int(lib.bs_core_home(self._core, proxy))

    def deliver(self, session: int, shard: int, data: bytes, now: Now | None = None) -> None:
        """What the session's proxy at `shard` has said, if it came as an upcall."""
        lib.bs_core_deliver(self._core, session, shard, data, len(data), c_now(now))

    def expect(self, session: int, shard: int, replies: int) -> None:
        """What a parked session waits for comes from `shard`; 0 replies take that back."""
        lib.bs_core_expect(self._core, session, shard, replies)

    def tell_watches(self, session: int, shard: int) -> None:
        """Makes the proxy at `shard` know what is watched there, by upcall, unless it does."""
        lib.bs_core_tell_watches(self._core, session, shard)

    def holds(self, session: int) -> int:
        """How many jobs a session has reserved here."""
        return int(lib.bs_core_holds(self._core, session))

    def tubes(self) -> list[tuple[int, bytes]]:
        """The tubes of this shard: number in creation order over all workers, and name."""
        length = ffi.new("size_t *")
        text = lib.bs_core_tubes(self._core, length)
        if text == ffi.NULL:
            raise MemoryError("no memory for a list of tubes")
        lines = bytes(ffi.buffer(text, length[0])).splitlines()
        return [(int(number), name) for number, _, name in (line.partition(b" ") for line in lines)]

    def tube_stats(
        self, first: int, most_bytes: int, now: Now | None = None
    ) -> tuple[bytes, int | None]:
        """The statistics of some tubes from slot `first` on, and the slot to go on from.

        That is None after the last one. The bytes, at most `most_bytes` and at least room for one
        tube, are what control.tubes.rows reads.
        """
        slot = ffi.new("int64_t *", first)
        capacity = max(most_bytes, lib.BS_TUBE_STATS_MAX)
        buffer = ffi.new("char[]", capacity)
        size = lib.bs_core_tube_stats(self._core, slot, buffer, capacity, c_now(now))
        return bytes(ffi.buffer(buffer, size)), None if slot[0] < 0 else slot[0]

    def change(self, max_job_size: int, sync_interval_ns: int) -> None:
        """New values for what CoreConfig has by these names, from now on.

        An interval below zero, never, cannot become another one or the other way round.
        """
        lib.bs_core_change(self._core, max_job_size, sync_interval_ns)

    def limit(self, limits: Limits, now: Now | None = None) -> None:
        """These limits hold from now on; without a call, `Limits()`."""
        lib.bs_core_limit(self._core, limits.to_c(), c_now(now))

    def trace(self, level: Trace, slow_ns: int) -> None:
        """What of clients becomes events from now on.

        Commands whose reply takes `slow_ns` nanoseconds or longer do, whatever the level; 0: none.
        """
        lib.bs_core_trace(self._core, level, slow_ns)

    def connections(self, first: int, most: int) -> tuple[list[Connection], int | None]:
        """Some sessions from slot `first` on, and the slot to go on from; None after the last one.

        `most` is how many slots are looked at.
        """
        facts = ffi.new("bs_session_facts *")
        found: list[Connection] = []
        for slot in range(first, first + most):
            result = lib.bs_core_session_at(self._core, slot, facts)
            if result == -errno.ENOENT:
                return found, None
            self._check(min(result, 0))
            if result == 1:
                found.append(connection_of(facts))
        return found, first + most

    def compact(self, per_cent: int, last: int, now: Now | None = None) -> CompactStep:
        """Moves jobs out of the oldest files of the binlog, about a million bytes.

        Until there are at most `per_cent` bytes in all files for every hundred needed, or all files
        that were there at first are gone. `last` is 0 at first, then what the step before says.
        """
        state = ffi.new("bs_compact_state *", {"last": last})
        lib.bs_core_compact(self._core, per_cent, state, c_now(now))
        return CompactStep(Compacting(state.outcome), state.last, state.bytes, state.alive)

    def truncate(
        self,
        tube: bytes,
        states: Iterable[str],
        most: int,
        generation: int = 0,
        now: Now | None = None,
    ) -> TruncateStep:
        """Removes at most `most` jobs of a tube in some of FREE_STATES: see bs_core_truncate.

        `generation` is 0 at first, then what the step before says; `most` is 0 from the first
        Truncating.WAIT on.
        """
        bits = sum(1 << FREE_STATES[state] for state in set(states))
        state = ffi.new("bs_truncate_state *", {"gen": generation})
        found = lib.bs_core_truncate(self._core, tube, len(tube), bits, most, state, c_now(now))
        full = found == -errno.ENOSPC
        if not full:
            self._check(found)
        return TruncateStep(Truncating(state.outcome), state.removed, state.gen, full)

    # --- claims: False where someone else was faster, or the session has gone -------------------

    def head(self, session: int, certain: bool = False, now: Now | None = None) -> Head | None:
        """What this shard has for a session. Nothing for one that has gone.

        None: a job that another session has claimed may be put back. The upcall CLAIMS_DECIDED
        then follows; call again with `certain`.
        """
        head = ffi.new("bs_head *")
        if lib.bs_core_head(self._core, session, certain, head, c_now(now)) == -errno.EAGAIN:
            return None
        flags = bool(head.ready), bool(head.any), bool(head.soon)
        return Head(*flags, head.pri, head.id, head.holds)

    def claim(
        self, session: int, pri: int, certain: bool = False, now: Now | None = None
    ) -> bool | None:
        """Reserves the best job of this priority or a better one, and answers. None: see `head`."""
        result = lib.bs_core_claim(self._core, session, pri, certain, c_now(now))
        return None if result == -errno.EAGAIN else bool(result == 1)

    def holds_nothing(self, session: int, shard: int) -> None:
        """A session holds no job at `shard`, so its reserves need not ask there for that."""
        lib.bs_core_holds_nothing(self._core, session, shard)

    def claim_wait(self, session: int, token: int, until: int, now: Now | None = None) -> None:
        """Claim a job now or later; the upcall CLAIM_ENDED reports which."""
        lib.bs_core_claim_wait(self._core, session, token, until, c_now(now))

    def claim_take(self, session: int, token: int, now: Now | None = None) -> bool:
        """Answers with the job that was claimed."""
        return bool(lib.bs_core_claim_take(self._core, session, token, c_now(now)) == 1)

    def claim_cancel(self, session: int, token: int, now: Now | None = None) -> bool:
        """Stops the wait or puts its job back as it was; whether there was anything to stop."""
        return bool(lib.bs_core_claim_cancel(self._core, session, token, c_now(now)) == 1)

    def reserve(
        self, session: int, until: int, certain: bool = False, now: Now | None = None
    ) -> bool:
        """The whole of a reserve of a proxy, which answers it itself. False: see `head`."""
        result = lib.bs_core_reserve(self._core, session, until, certain, c_now(now))
        return bool(result != -errno.EAGAIN)

    # --- moving a connection --------------------------------------------------------------------

    def detach(self, session: int, shard: int, now: Now | None = None) -> Migration | None:
        """Ends a session whose connection the caller sends to worker `shard` with its next call.

        None if it cannot move now.
        """
        migration = ffi.new("bs_migration *")
        if lib.bs_core_detach(self._core, session, shard, migration, c_now(now)) != 0:
            return None
        state = bytes(ffi.buffer(migration.state, migration.length))
        flags = bool(migration.producer), bool(migration.worker), bool(migration.eof)
        trace = (
            migration.shard,
            migration.connection,
            migration.commands,
            migration.opened,
            bool(migration.told),
        )
        return Migration(migration.fd, *flags, state, trace)

    def attach(self, migration: Migration, now: Now | None = None) -> None:
        """Takes on a session from another worker; its descriptor is the core's, also on failure."""
        c_migration = ffi.new("bs_migration *")
        state = ffi.from_buffer("char[]", migration.state)
        c_migration.fd, c_migration.state, c_migration.length = (
            migration.fd,
            state,
            len(migration.state),
        )
        c_migration.producer = migration.producer
        c_migration.worker = migration.worker
        c_migration.eof = migration.eof
        c_migration.shard, c_migration.connection, c_migration.commands = migration.trace[:3]
        c_migration.opened, c_migration.told = migration.trace[3:]
        self._check(lib.bs_core_attach(self._core, c_migration, c_now(now)))

    def lost_move(self, shard: int) -> None:
        """Notes that a connection which worker `shard` has sent did not arrive."""
        lib.bs_core_lost_move(self._core, shard)

    def stay(self, session: int) -> None:
        """A session that wanted to move goes on here."""
        lib.bs_core_stay(self._core, session)

    # --- moving jobs elsewhere ----------------------------------------------------------------

    def read(self, now: Now) -> None:
        """As `recover`, but starts no file: the core is then only a source for a Transfer.

        It keeps the folder's lock until it is closed. Raises BinlogLockedError,
        BinlogFolderError or CoreError.
        """
        self._check(lib.bs_core_read(self._core, c_now(now)))

    def damaged_files(self) -> list[str]:
        """The names of files in which entries were unreadable."""
        names: list[str] = []
        while number := lib.bs_core_damaged(self._core, len(names)):
            names.append(f"binlog.{number}")
        return names

    def give_jobs(self, transfer: Any) -> int:
        """Adds all jobs to a `bs_transfer *`; 0 or a negative errno. For Transfer.add."""
        return lib.bs_transfer_add(transfer, self._core)

    # --- errors -------------------------------------------------------------------------------

    def _check(self, code: int) -> None:
        if code >= 0:
            return
        if code == lib.BS_ERR_LOCKED:
            raise errors.BinlogLockedError(self.error)
        if code == lib.BS_ERR_FOLDER:
            raise errors.BinlogFolderError(self.error)
        if code == lib.BS_ERR_BINLOG:
            raise errors.BinlogWriteError(self.error, code)
        raise errors.CoreError(self.error or os.strerror(-code), code)

    def _check_session(self, code: int) -> None:
        if code == -errno.ENOENT:
            raise errors.SessionEndedError("the session has ended", code)
        self._check(code)
