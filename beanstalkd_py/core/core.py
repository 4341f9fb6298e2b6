"""Typed wrapper of the C core: one queue with its sessions and binlog.

Each method of Core calls the C function of csrc/api/server.h with the same name, which is described
there, and raises an exception where C returns a negative number.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.core.c_values import fields_of
from beanstalkd_py.core.clocks import Now, c_now
from beanstalkd_py.core.connections import Connection, Roles, connection_of
from beanstalkd_py.core.coordination import Migration
from beanstalkd_py.core.events import Event, event_of
from beanstalkd_py.core.limits import Limits
from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.core.step_results import FREE_STATES, CompactStep, StepOutcome, TruncateStep
from beanstalkd_py.core.tube_policy import BODY, BURY, DELETE, MOVE, Backoff, Rate, TubePolicy

OUTPUT_BYTES = 1 << 16
PATTERN_BYTES = 256


class Run(enum.IntFlag):
    """Why Core.run has returned."""

    EVENTS = lib.BS_RUN_EVENTS
    UPCALLS = lib.BS_RUN_UPCALLS
    MORE = lib.BS_RUN_MORE
    EXTERNAL = lib.BS_RUN_EXTERNAL
    FATAL = lib.BS_RUN_FATAL


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """The fixed configuration of a core: `bs_config` of csrc/api/server.h.

    Without `binlog_dir` nothing is written. `sync_interval_ns` is 0 for a sync before each reply
    and negative for never. With `history` the binlog has what an archiver needs. `body_memory` is
    bytes; 0 keeps all bodies in memory.
    """

    binlog_dir: str | None = None
    file_size: int = 10485760
    sync_interval_ns: int = 0
    max_job_size: int = 65535
    worker: int = 0
    workers: int = 1
    colocate: bytes | None = None
    history: bool = False
    body_memory: int = 0


class Core:
    """One queue. Times default to the current clocks; tests pass their own.

    All methods belong to one thread. A method that fails raises CoreError or one of its children
    with the core's message.
    """

    def __init__(self, config: CoreConfig, shared: Any, now: Now | None = None) -> None:
        """Raises MemoryError without memory or descriptors. `shared` is a `bs_shared *`."""
        folder, colocate = config.binlog_dir, config.colocate
        strings = {
            "binlog_dir": ffi.NULL if folder is None else ffi.new("char[]", os.fsencode(folder)),
            "colocate": ffi.NULL if colocate is None else ffi.new("char[]", colocate),
        }
        c_config = ffi.new("bs_config *", {**asdict(config), **strings})
        self._shared = shared  # must outlive the core
        self._event = ffi.new("bs_event *")
        self._upcall = ffi.new("bs_upcall *")
        self._buffer = ffi.new("char[]", OUTPUT_BYTES)
        self._core = lib.bs_core_new(c_config, shared, c_now(now))
        if self._core == ffi.NULL:
            raise MemoryError("no memory or descriptors for a core")
        core = self._core
        # These C functions take and return plain values, so they need no method.
        self.flush = partial(lib.bs_core_flush, core)
        self.proxy = partial(lib.bs_core_proxy, core)
        self.expect = partial(lib.bs_core_expect, core)
        self.holds = partial(lib.bs_core_holds, core)
        self.migration_lost = partial(lib.bs_core_migration_lost, core)
        self.cancel_migration = partial(lib.bs_core_cancel_migration, core)
        self.change = partial(lib.bs_core_change, core)
        self.trace = partial(lib.bs_core_trace, core)

    # --- start and stop ------------------------------------------------------------------

    def replicate(self, offer_fd: int, stored_fd: int) -> None:
        self._check(lib.bs_core_replicate(self._core, offer_fd, stored_fd))

    def follow(self, position: BinlogPosition, now: Now | None = None) -> None:
        """Read the binlog folder up to a position, while another process writes it.

        Raises BinlogFolderError or CoreError; the core cannot be used then.
        """
        where = position.file, position.offset
        self._check(lib.bs_core_follow(self._core, *where, c_now(now)))

    def recover(self, now: Now | None = None) -> None:
        """Open the binlog folder and read its files.

        Raises BinlogLockedError, BinlogFolderError or CoreError.
        """
        self._check(lib.bs_core_recover(self._core, c_now(now)))

    def end_commands(self) -> None:
        """Execute no command of a client from now on. Replies still leave."""
        lib.bs_core_end_commands(self._core)

    def unsent(self) -> int:
        """Return 0 if `stop` would cut no reply, else a number that changes as replies leave."""
        return lib.bs_core_unsent(self._core)

    def stop(self) -> None:
        self._check(lib.bs_core_stop(self._core))

    def close(self) -> None:
        """Free everything without writing."""
        if self._core != ffi.NULL:
            lib.bs_core_free(self._core)
            self._core = ffi.NULL

    @property
    def error(self) -> str:
        return ffi.string(lib.bs_core_error(self._core)).decode("utf-8", "replace")

    # --- the loop -----------------------------------------------------------------------------

    @property
    def fd(self) -> int:
        return lib.bs_core_fd(self._core)

    def run(self, budget_ns: int, linger: bool) -> int:
        """Return bits of Run as a plain int."""
        return lib.bs_core_run(self._core, budget_ns, linger)

    def adopt(self, fd: int) -> None:
        self._check(lib.bs_core_adopt(self._core, fd))

    def adopt_from(self, fd: int) -> None:
        self._check(lib.bs_core_adopt_from(self._core, fd))

    def watch(self, fd: int) -> None:
        self._check(lib.bs_core_watch(self._core, fd))

    def events(self) -> Iterator[Event]:
        event = self._event
        while lib.bs_core_next_event(self._core, event) == 1:
            yield event_of(event)

    def answer(self, session: int, reply: bytes, now: Now | None = None) -> None:
        self._check(lib.bs_core_answer(self._core, session, reply, len(reply), c_now(now)))

    def roles(self) -> Roles:
        producers, workers = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.bs_core_roles(self._core, producers, workers)
        return Roles(producers[0], workers[0])

    # --- sessions without a socket --------------------------------------------------------------

    def open(self, now: Now | None = None) -> int:
        """Open a session and return its number. Raises MemoryError."""
        session = lib.bs_core_open(self._core, c_now(now))
        if session == 0:
            raise MemoryError("no memory for a session")
        return session

    def feed(self, session: int, data: bytes, now: Now | None = None) -> None:
        """Raises SessionEndedError."""
        self._check_session(lib.bs_core_feed(self._core, session, data, len(data), c_now(now)))

    def finish(self, session: int, now: Now | None = None) -> None:
        """End the input of a session. Raises SessionEndedError."""
        self._check_session(lib.bs_core_finish(self._core, session, c_now(now)))

    def output(self, session: int) -> bytes:
        """Return the output that may leave. Raises SessionEndedError."""
        parts = []
        while size := lib.bs_core_output(self._core, session, self._buffer, OUTPUT_BYTES):
            self._check_session(size)
            parts.append(bytes(ffi.buffer(self._buffer, size)))
        return b"".join(parts)

    def end(self, session: int, now: Now | None = None) -> None:
        lib.bs_core_close(self._core, session, c_now(now))

    def tick(self, now: Now | None = None) -> int:
        return lib.bs_core_tick(self._core, c_now(now))

    def commit(self, now: Now | None = None) -> None:
        self._check(lib.bs_core_commit(self._core, c_now(now)))

    # --- other workers --------------------------------------------------------------------------

    def next_upcall(self) -> Any:
        """Return the next `bs_upcall`, valid until the next call, or None."""
        return self._upcall if lib.bs_core_next_upcall(self._core, self._upcall) == 1 else None

    @staticmethod
    def upcall_bytes(upcall: Any) -> bytes:
        return bytes(ffi.buffer(upcall.bytes, upcall.length)) if upcall.length else b""

    def resume_peers(self, now: Now | None = None) -> bool:
        """Call it when all upcalls are handled. Returns whether there are new ones."""
        return lib.bs_core_resume_peers(self._core, c_now(now)) == 1

    def add_peer(self, shard: int, fd: int, now: Now | None = None) -> None:
        self._check(lib.bs_core_add_peer(self._core, shard, fd, c_now(now)))

    def lose_peer(self, shard: int, now: Now | None = None) -> None:
        lib.bs_core_lose_peer(self._core, shard, c_now(now))

    def send(self, shard: int, frame: bytes, *, session: int = 0, fd: int = -1) -> None:
        """Send a packed frame to another worker, in order.

        `session` is the session at home that the frame is about. Frames of a session that has
        ended, and frames for a worker that is down, are dropped. The core owns the descriptor.
        """
        self._send(shard, lib.BS_FRAME_PYTHON, session, frame, fd)

    def feed_proxy(self, shard: int, session: int, line: bytes) -> None:
        """Send a command line to the proxy of a session at home, in order with `send`."""
        self._send(shard, lib.BS_FRAME_FEED, session, line, -1)

    def _send(self, shard: int, kind: int, session: int, content: bytes, fd: int) -> None:
        error = lib.bs_core_send(self._core, shard, kind, session, content, len(content), fd)
        if error not in (-errno.ENOENT, -errno.ENOTCONN):
            self._check(error)

    def relay_output(self, session: int, shard: int, data: bytes, now: Now | None = None) -> None:
        lib.bs_core_relay_output(self._core, session, shard, data, len(data), c_now(now))

    def tubes(self) -> list[tuple[int, bytes]]:
        """Return the tubes of this shard: global creation number and name."""
        length = ffi.new("size_t *")
        text = lib.bs_core_tubes(self._core, length)
        if text == ffi.NULL:
            raise MemoryError("no memory for a list of tubes")
        lines = bytes(ffi.buffer(text, length[0])).splitlines()
        return [(int(number), name) for number, _, name in (line.partition(b" ") for line in lines)]

    def tube_stats(
        self, first: int, most_bytes: int, now: Now | None = None
    ) -> tuple[bytes, int | None]:
        """Return statistics of tubes from slot `first` on, and the next slot or None.

        The bytes, at most `most_bytes` but at least one tube, are input of control.tubes.rows.
        """
        slot = ffi.new("int64_t *", first)
        capacity = max(most_bytes, lib.BS_TUBE_STATS_MAX)
        buffer = ffi.new("char[]", capacity)
        size = lib.bs_core_tube_stats(self._core, slot, buffer, capacity, c_now(now))
        return bytes(ffi.buffer(buffer, size)), None if slot[0] < 0 else slot[0]

    def limit(self, limits: Limits, now: Now | None = None) -> None:
        lib.bs_core_limit(self._core, limits.to_c(), c_now(now))

    def set_policies(self, policies: Sequence[TubePolicy], now: Now | None = None) -> None:
        strings: list[Any] = []  # of the C structures, which do not keep them alive
        fields = [_policy_fields(one, strings) for one in policies]
        c_policies = ffi.new("bs_policy[]", fields)
        self._check(lib.bs_core_set_policies(self._core, c_policies, len(fields), c_now(now)))

    def policy_of(self, tube: bytes) -> str | None:
        """Return the pattern of a tube's policy, None if it has none or does not exist here."""
        pattern = ffi.new("char[]", PATTERN_BYTES)
        error = lib.bs_core_policy_of(self._core, tube, len(tube), pattern, PATTERN_BYTES)
        return None if error else ffi.string(pattern).decode() or None

    def connections(self, first: int, most: int) -> tuple[list[Connection], int | None]:
        """Return the sessions in `most` slots from `first` on, and the next slot or None."""
        info = ffi.new("bs_session_info *")
        connections: list[Connection] = []
        for slot in range(first, first + most):
            result = lib.bs_core_session_at(self._core, slot, info)
            if result == -errno.ENOENT:
                return connections, None
            self._check(min(result, 0))
            if result == 1:
                connections.append(connection_of(info))
        return connections, first + most

    def compact(self, per_cent: int, last: int, now: Now | None = None) -> CompactStep:
        """Move jobs out of the oldest binlog files, about a million bytes.

        The goal is `per_cent` bytes in all files for every hundred needed, or that all files up to
        `last` are gone. `last` is 0 at first, then that of the last step.
        """
        state = ffi.new("bs_compact_state *", {"last": last})
        lib.bs_core_compact(self._core, per_cent, state, c_now(now))
        return CompactStep(StepOutcome(state.outcome), state.last, state.bytes, state.alive)

    def truncate(
        self,
        tube: bytes,
        states: Iterable[str],
        most: int,
        generation: int = 0,
        now: Now | None = None,
    ) -> TruncateStep:
        """Remove at most `most` jobs of a tube in some of FREE_STATES: see bs_core_truncate.

        `generation` is 0 at first, then that of the step before; `most` is 0 from the first
        StepOutcome.WAIT on.
        """
        bits = sum(1 << FREE_STATES[state] for state in set(states))
        state = ffi.new("bs_truncate_state *", {"gen": generation})
        error = lib.bs_core_truncate(self._core, tube, len(tube), bits, most, state, c_now(now))
        full = error == -errno.ENOSPC
        if not full:
            self._check(error)
        return TruncateStep(StepOutcome(state.outcome), state.removed, state.gen, full)

    # --- moving a connection --------------------------------------------------------------------

    def detach(self, session: int, shard: int, now: Now | None = None) -> Migration | None:
        """End a session whose connection the next call sends to worker `shard`.

        Returns None if it cannot move now.
        """
        migration = ffi.new("bs_migration *")
        if lib.bs_core_detach(self._core, session, shard, migration, c_now(now)) != 0:
            return None
        state = bytes(ffi.buffer(migration.state, migration.length))
        return Migration._make([*fields_of(migration, Migration._fields[:-1]), state])

    def attach(self, migration: Migration, now: Now | None = None) -> None:
        state = ffi.from_buffer("char[]", migration.state)
        fields = {**migration._asdict(), "state": state, "length": len(migration.state)}
        c_migration = ffi.new("bs_migration *", fields)
        self._check(lib.bs_core_attach(self._core, c_migration, c_now(now)))

    # --- moving jobs elsewhere ----------------------------------------------------------------

    def read(self, now: Now) -> None:
        """Read the folder as `recover` does, but start no file: a source for a Transfer.

        It keeps the folder's lock until it is closed. Raises BinlogLockedError, BinlogFolderError
        or CoreError.
        """
        self._check(lib.bs_core_read(self._core, c_now(now)))

    def damaged_files(self) -> list[str]:
        """Return the names of files with unreadable entries."""
        names: list[str] = []
        while number := lib.bs_core_damaged(self._core, len(names)):
            names.append(f"binlog.{number}")
        return names

    def give_jobs(self, transfer: Any) -> int:
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


def _policy_fields(policy: TubePolicy, strings: list[Any]) -> dict[str, Any]:
    """Return the fields of a `bs_policy`. Appends its strings to `strings`."""
    strings.append(ffi.new("char[]", policy.pattern.encode()))
    fields = policy._asdict() | {"pattern": strings[-1], "then": _THEN.get(policy.then, 0)}
    if policy.then.startswith(MOVE):
        strings.append(ffi.new("char[]", policy.then.removeprefix(MOVE).encode()))
        fields |= {"then": lib.BS_THEN_MOVE, "move_to": strings[-1]}
    backoff, rate = fields.pop("release_backoff"), fields.pop("rate")
    fields["unique_body"] = fields.pop("unique") == BODY
    if backoff:
        fields["backoff"], fields["backoff_max"] = Backoff.parse(backoff)
    if rate:
        fields["rate_interval_ns"], fields["rate_burst"] = Rate.parse(rate)
    return fields


_THEN = {BURY: lib.BS_THEN_BURY, DELETE: lib.BS_THEN_DELETE}
