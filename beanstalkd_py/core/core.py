"""class Core: one queue with its sessions and binlog, as csrc/core.h describes it.

Each method is one call of the C function of the same name, with types, and with an exception
where C returns a negative number. It must not know where its descriptors, bytes and clocks come
from.
"""

from __future__ import annotations

import enum
import errno
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from beanstalkd_py import errors
from beanstalkd_py.core._core import ffi, lib

OUTPUT_BYTES = 1 << 16


class Now(NamedTuple):
    """Both clocks at one moment, nanoseconds: `mono` runs timers, `wall` is only stored."""

    mono: int
    wall: int


class Run(enum.IntFlag):
    """What Core.run wants of its caller."""

    EVENTS = lib.BS_RUN_EVENTS
    MAIL = lib.BS_RUN_MAIL
    MORE = lib.BS_RUN_MORE
    EXTERNAL = lib.BS_RUN_EXTERNAL
    FATAL = lib.BS_RUN_FATAL


class MailKind(enum.IntEnum):
    """What the core wants of other workers."""

    FEED = lib.BS_MAIL_FEED
    OUTPUT = lib.BS_MAIL_OUTPUT
    RESERVE = lib.BS_MAIL_RESERVE
    CLAIM = lib.BS_MAIL_CLAIM
    ANYWHERE = lib.BS_MAIL_ANYWHERE
    TUBES = lib.BS_MAIL_TUBES
    CLOSED = lib.BS_MAIL_CLOSED
    MOVE = lib.BS_MAIL_MOVE
    PEER = lib.BS_MAIL_PEER
    COUNT = lib.BS_MAIL_COUNT


class Outcome(enum.IntEnum):
    """How a wait has ended."""

    JOB = lib.BS_CLAIM_JOB
    TIMED_OUT = lib.BS_CLAIM_TIMED_OUT
    DEADLINE_SOON = lib.BS_CLAIM_DEADLINE_SOON
    ANSWERED = lib.BS_CLAIM_ANSWERED


class PeerState(enum.IntEnum):
    """What another worker is to this one."""

    DOWN = lib.BS_PEER_DOWN
    UP = lib.BS_PEER_UP
    BUSY = lib.BS_PEER_BUSY


class Head(NamedTuple):
    """What one shard has for a session that reserves: `bs_head` of core.h."""

    ready: bool
    any: bool
    soon: bool
    pri: int
    id: int


class Luggage(NamedTuple):
    """A session on its way to another worker: `bs_luggage` of core.h."""

    fd: int
    producer: bool
    worker: bool
    eof: bool
    state: bytes


NEVER = 2**63 - 1
"""A time that does not come."""


class EventKind(enum.IntEnum):
    """What the core cannot do alone."""

    STATS = lib.BS_EVENT_STATS
    LOG = lib.BS_EVENT_LOG


class Event(NamedTuple):
    """One entry of the core's event queue; which fields mean something depends on `kind`."""

    kind: int
    level: int
    session: int
    text: str


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """What a core is told once.

    `file_size` and `max_job_size` are bytes, `sync_interval_ns` is 0 for sync before the reply
    and negative for never. Without `binlog_dir` nothing is written. `worker` is the index of the
    counters and the number of the shard among `workers`; `colocate` ends the part of a tube's name
    that decides its shard.
    """

    binlog_dir: str | None = None
    file_size: int = 10485760
    sync_interval_ns: int = 0
    max_job_size: int = 65535
    worker: int = 0
    workers: int = 1
    colocate: bytes | None = None


def read_clocks() -> Now:
    """The clocks as the core reads them."""
    now = lib.bs_now_read()
    return Now(now.mono, now.wall)


def new_shared() -> Any:
    """A bs_shared of this process alone, all zeros, for a core without a parent."""
    # Mapped, because only the pages that are used should cost anything.
    memory = ffi.from_buffer(
        "char[]", mmap.mmap(-1, ffi.sizeof("bs_shared")), require_writable=True
    )
    shared = ffi.cast("bs_shared *", memory)
    _mapped[shared] = memory
    return shared


_mapped: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Keeps the memory of a bs_shared as long as the pointer to it lives."""


def shard_of(tube: bytes, workers: int, colocate: bytes | None = None) -> int:
    """The shard of a tube among `workers`; `colocate` ends the part of its name that decides."""
    return int(
        lib.bs_shard_of(tube, len(tube), workers, ffi.NULL if colocate is None else colocate)
    )


def _c_now(now: Now | None) -> Any:
    return lib.bs_now_read() if now is None else ffi.new("bs_now *", tuple(now))[0]


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
        self._shared = shared  # must outlive the core
        self._event = ffi.new("bs_event *")
        self._mail = ffi.new("bs_mail *")
        self._buffer = ffi.new("char[]", OUTPUT_BYTES)
        self._core = lib.bs_core_new(c_config, shared, _c_now(now))
        if self._core == ffi.NULL:
            raise MemoryError("no memory or descriptors for a core")

    # --- life ---------------------------------------------------------------------------------

    def recover(self, now: Now | None = None) -> None:
        """Opens the binlog folder and reads what it holds.

        Raises BinlogLockedError, BinlogFolderError or CoreError.
        """
        self._check(lib.bs_core_recover(self._core, _c_now(now)))

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
            text = ffi.string(event.text, ffi.sizeof(event.text)).decode("utf-8", "replace")
            yield Event(event.kind, event.level, event.session, text)

    def answer(self, session: int, reply: bytes, now: Now | None = None) -> None:
        """Gives a session the bytes it waits for. One that has gone meanwhile is no error."""
        self._check(lib.bs_core_answer(self._core, session, reply, len(reply), _c_now(now)))

    # --- sessions without a socket --------------------------------------------------------------

    def open(self, now: Now | None = None) -> int:
        """A new session's number. Raises MemoryError."""
        session = lib.bs_core_open(self._core, _c_now(now))
        if session == 0:
            raise MemoryError("no memory for a session")
        return session

    def feed(self, session: int, data: bytes, now: Now | None = None) -> None:
        """Feeds bytes. Raises SessionEndedError."""
        self._check_session(lib.bs_core_feed(self._core, session, data, len(data), _c_now(now)))

    def finish(self, session: int, now: Now | None = None) -> None:
        """Says that no more bytes will come. Raises SessionEndedError."""
        self._check_session(lib.bs_core_finish(self._core, session, _c_now(now)))

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
        lib.bs_core_close(self._core, session, _c_now(now))

    def tick(self, now: Now | None = None) -> int:
        """Runs the timers that are due; the monotonic time of the next, 2**63 - 1 without any."""
        return lib.bs_core_tick(self._core, _c_now(now))

    def commit(self, now: Now | None = None) -> None:
        """Ends a round: writes, syncs if replies wait for it, lets them go. BinlogWriteError."""
        self._check(lib.bs_core_commit(self._core, _c_now(now)))

    # --- other workers --------------------------------------------------------------------------

    def next_mail(self) -> Any:
        """The next `bs_mail`, good until the next call, or None. Take its bytes by `mail_bytes`."""
        return self._mail if lib.bs_core_next_mail(self._core, self._mail) == 1 else None

    @staticmethod
    def mail_bytes(mail: Any) -> bytes:
        """A copy of a mail's bytes."""
        return bytes(ffi.buffer(mail.bytes, mail.length)) if mail.length else b""

    def watch_peer(self, shard: int, fd: int, writable: bool) -> None:
        """Mails PEER while the socket to this worker is readable or, if wanted, writable."""
        self._check(lib.bs_core_watch_peer(self._core, shard, fd, writable))

    def peer(self, shard: int, state: PeerState, now: Now | None = None) -> None:
        """Another worker is up, down or busy."""
        lib.bs_core_peer(self._core, shard, state, _c_now(now))

    def open_proxy(self, peer: int, now: Now | None = None) -> int:
        """A session for one of worker `peer`. Raises MemoryError."""
        session = lib.bs_core_open_proxy(self._core, peer, _c_now(now))
        if session == 0:
            raise MemoryError("no memory for a session")
        return int(session)

    def deliver(self, session: int, shard: int, data: bytes, now: Now | None = None) -> None:
        """What the session's proxy at `shard` has said."""
        lib.bs_core_deliver(self._core, session, shard, data, len(data), _c_now(now))

    def expect(self, session: int, shard: int, replies: int) -> None:
        """What a parked session waits for comes from `shard`; 0 replies take that back."""
        lib.bs_core_expect(self._core, session, shard, replies)

    def tell_watches(self, session: int, shard: int) -> None:
        """Makes the proxy at `shard` know what is watched there, by mail, unless it does."""
        lib.bs_core_tell_watches(self._core, session, shard)

    def holds(self, session: int) -> int:
        """How many jobs a session has reserved here."""
        return int(lib.bs_core_holds(self._core, session))

    def count_tube(
        self, tube: bytes, users: int, watchers: int, number: int, now: Now | None = None
    ) -> None:
        """So many more or fewer sessions of other workers use and watch a tube of this shard.

        `number` is its place in creation order, as their worker knows it.
        """
        self._check(
            lib.bs_core_count_tube(
                self._core, tube, len(tube), users, watchers, number, _c_now(now)
            )
        )

    def tubes(self) -> list[tuple[int, bytes]]:
        """The tubes of this shard: number in creation order over all workers, and name."""
        length = ffi.new("size_t *")
        text = lib.bs_core_tubes(self._core, length)
        if text == ffi.NULL:
            raise MemoryError("no memory for a list of tubes")
        lines = bytes(ffi.buffer(text, length[0])).splitlines()
        return [(int(number), name) for number, _, name in (line.partition(b" ") for line in lines)]

    # --- claims: False where someone else was faster, or the session has gone -------------------

    def head(self, session: int, now: Now | None = None) -> Head:
        """What this shard has for a session. Nothing for one that has gone."""
        head = ffi.new("bs_head *")
        lib.bs_core_head(self._core, session, head, _c_now(now))
        return Head(bool(head.ready), bool(head.any), bool(head.soon), head.pri, head.id)

    def claim(self, session: int, pri: int, job: int, now: Now | None = None) -> bool:
        """Reserves the best job if it is not behind this one, and answers."""
        return bool(lib.bs_core_claim(self._core, session, pri, job, _c_now(now)) == 1)

    def claim_wait(self, session: int, token: int, until: int, now: Now | None = None) -> None:
        """Claims a job now or later; a mail CLAIM says which. `until` is monotonic nanoseconds."""
        lib.bs_core_claim_wait(self._core, session, token, until, _c_now(now))

    def claim_take(self, session: int, token: int, now: Now | None = None) -> bool:
        """Answers with the job that was claimed."""
        return bool(lib.bs_core_claim_take(self._core, session, token, _c_now(now)) == 1)

    def claim_cancel(self, session: int, token: int, now: Now | None = None) -> bool:
        """Stops the wait or puts its job back as it was; whether there was anything to stop."""
        return bool(lib.bs_core_claim_cancel(self._core, session, token, _c_now(now)) == 1)

    def reserve(self, session: int, until: int, now: Now | None = None) -> None:
        """The whole of a reserve of a proxy, which answers it itself."""
        lib.bs_core_reserve(self._core, session, until, _c_now(now))

    # --- moving a connection --------------------------------------------------------------------

    def detach(self, session: int, now: Now | None = None) -> Luggage | None:
        """Ends a session and gives its connection to the caller; None if it cannot move now."""
        luggage = ffi.new("bs_luggage *")
        if lib.bs_core_detach(self._core, session, luggage, _c_now(now)) != 0:
            return None
        state = bytes(ffi.buffer(luggage.state, luggage.length))
        flags = bool(luggage.producer), bool(luggage.worker), bool(luggage.eof)
        return Luggage(luggage.fd, *flags, state)

    def attach(self, luggage: Luggage, now: Now | None = None) -> None:
        """Takes on a session from another worker; its descriptor is the core's, also on failure."""
        c_luggage = ffi.new("bs_luggage *")
        state = ffi.from_buffer("char[]", luggage.state)
        c_luggage.fd, c_luggage.state, c_luggage.length = luggage.fd, state, len(luggage.state)
        c_luggage.producer = luggage.producer
        c_luggage.worker = luggage.worker
        c_luggage.eof = luggage.eof
        self._check(lib.bs_core_attach(self._core, c_luggage, _c_now(now)))

    def stay(self, session: int) -> None:
        """A session that wanted to move goes on here."""
        lib.bs_core_stay(self._core, session)

    # --- moving jobs elsewhere ----------------------------------------------------------------

    def read(self, now: Now) -> None:
        """As `recover`, but starts no file: the core is then only a source for a Transfer.

        It keeps the folder's lock until it is closed. Raises BinlogLockedError,
        BinlogFolderError or CoreError.
        """
        self._check(lib.bs_core_read(self._core, _c_now(now)))

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


class Transfer:
    """Writes the jobs of cores that have read their folders into new folders, one per shard.

    In this order: `add` each source, which must stay open, `start`, `write` until nothing is left,
    `finish`, `close`. Methods raise OSError.
    """

    def __init__(self, folders: list[str], file_size: int, colocate: bytes | None) -> None:
        """`folders` exist and are empty; `file_size` is bytes."""
        names = [ffi.new("char[]", os.fsencode(folder)) for folder in folders]
        separator = ffi.NULL if colocate is None else ffi.new("char[]", colocate)
        made = ffi.new("bs_transfer **")
        c_names = ffi.new("char *[]", names)
        _raise_errno(lib.bs_transfer_new(c_names, len(names), separator, file_size, made))
        self._transfer = made[0]

    def add(self, source: Core) -> None:
        """Takes note of all its jobs."""
        _raise_errno(source.give_jobs(self._transfer))

    def start(self, last_id: int, now: Now) -> int:
        """Sorts the jobs; how many there are. `last_id` is the highest id ever given.

        `now` must be the same as in Core.read.
        """
        return _raise_errno(lib.bs_transfer_start(self._transfer, last_id, _c_now(now)))

    def write(self, size: int) -> int:
        """Writes jobs of at least `size` bytes together; how many jobs are left."""
        return _raise_errno(lib.bs_transfer_write(self._transfer, size))

    def finish(self) -> int:
        """Syncs the files, not their folders; how many jobs had ids that others had, too."""
        return _raise_errno(lib.bs_transfer_finish(self._transfer))

    def close(self) -> None:
        """Frees it; it is of no use afterwards."""
        if self._transfer != ffi.NULL:
            lib.bs_transfer_free(self._transfer)
            self._transfer = ffi.NULL


def _raise_errno(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
