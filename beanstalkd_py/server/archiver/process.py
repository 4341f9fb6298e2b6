"""The archiver, from exec to exit: the process that turns finished jobs into history.

process.py runs it with CHANNEL CONNECTIONS SHARED, three descriptors from the parent; the second is
not used. It reads binlogs behind the workers, up to where they are on disk, and must never be in
their way: it has no lock, asks nobody, and is nice. It has no event loop; the store has threads.
What it does is beanstalkd_py.archiver's; here is when.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.archiver.archive import Archive, describe_losses
from beanstalkd_py.archiver.cpu_throttle import CpuThrottle
from beanstalkd_py.archiver.store_settings import UMASK, StoreSettings
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.shared_memory import BinlogPosition, durable_position
from beanstalkd_py.history.store import Store
from beanstalkd_py.history.writing.upkeep import NO_SPACE
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import LOGGER, never_block, set_up_logging
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.child import configuration, ignore_server_signals
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.shared_memory import SharedMemory

NO_ROOM_TEXT = "the history has no room, finished jobs wait in the binlog: %s"
SOURCE = LogSource(name="archiver")
NICENESS = 10
"""Workers come first where there are not enough processors."""
IDLE_S = 0.1
"""Between two looks at whether anything has ended."""
TROUBLE_PAUSE_S = 0.5
FULL_PAUSE_S = 1.0
"""Between two tries when the store has no room."""
STATUS_S = 1.0
SETTLE_S = 5.0
"""Between two times that files are let go."""
CROWDED = 0.25
"""Of what may wait: files that may go do, if they are more."""
URGENT = 0.5
"""Of what may wait: from here on it takes what it needs of the processors."""
TOLD_FAULTS = 20
"""ArchivedPositions in binlogs that could not be read are told one by one up to so many."""


def main(arguments: list[str]) -> int:
    """Runs the process; its exit status."""
    channel_fd, connections_fd, shared_fd = map(int, arguments)
    ignore_server_signals()
    os.close(connections_fd)
    channel_ = channel.Channel(socket.socket(fileno=channel_fd))
    config = configuration(channel_)
    if config is None:
        return EXIT_OK
    set_up_logging(config["verbosity"], config["log_format"], SOURCE)
    never_block()
    give_way_to_workers()
    os.umask(UMASK)
    create_as_owner_of(StoreSettings.from_message(config["history"]).folder)
    shared = SharedMemory(shared_fd)
    os.close(shared_fd)
    try:
        return _run(channel_, config, shared)
    except (errors.BeanstalkdError, OSError) as error:
        channel_.send(channel.FAILED, EXIT_ERROR, str(error))
        return EXIT_ERROR


def give_way_to_workers() -> None:
    """Lowers the priority of this process, where it may: a unit's system call filter can forbid it.

    CpuThrottle does the rest.
    """
    try:
        os.nice(NICENESS)
    except OSError as error:
        LOGGER.info("the archiver runs at normal priority: %s", error.strerror)


def _run(channel_: channel.Channel, config: dict[str, Any], shared: SharedMemory) -> int:
    folders = [Path(os.fsdecode(folder)) for folder in config["folders"]]
    settings = StoreSettings.from_message(config["history"])

    def open_archive() -> tuple[Store, Archive]:
        store = Store.open(settings.folder, settings.options())
        try:
            archive = Archive(store, folders, place)
        except BaseException:
            store.abandon()
            raise
        for text in describe_losses(store, archive):
            LOGGER.error("%s", text)
        return store, archive

    def place(index: int) -> BinlogPosition:
        while (found := durable_position(shared.counters(index))) is None:
            continue  # it is just being changed
        return found

    opened = _opened(channel_, open_archive)
    if opened is None:
        return EXIT_OK
    store, archive = opened
    try:
        with store:
            channel_.send(channel.READY)
            return Archiver(channel_, archive, store, config["backlog"]).run()
    finally:
        archive.close()


def _opened(
    channel_: channel.Channel, open_archive: Callable[[], tuple[Store, Archive]]
) -> tuple[Store, Archive] | None:
    """Opens the store, as soon as the disk has room for what that takes; None: it is to stop."""
    told = False
    while True:
        try:
            return open_archive()
        except (errors.StoreFullError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_SPACE:
                raise
            refused = str(error)
        if not told:
            LOGGER.warning(NO_ROOM_TEXT, refused)
        told = True
        channel_.send(channel.STATUS, {"refused": refused})
        if select.select([channel_], [], [], FULL_PAUSE_S)[0]:
            match channel_.receive():
                case None | [channel.STOP]:
                    return None


class Archiver:
    """The loop: heeds the parent, lets the archive read, tells how far it is."""

    def __init__(
        self, channel_: channel.Channel, archive: Archive, store: Store, backlog: int
    ) -> None:
        self._orders = channel_
        self._archive = archive
        self._store = store
        self._told_mono = 0.0
        self._settled_mono = 0.0
        self._faults = 0
        self._refused = ""
        self._trouble = ""
        self._has_caught_up = False
        self._stopping = False
        self._courtesy = CpuThrottle()
        self._behind = 0
        self._backlog = backlog

    def run(self) -> int:
        """Archives until the parent says stop, then what is left; the exit status."""
        pause_s = 0.0
        while not self._stopping:
            if not self._handle_message(pause_s):
                return EXIT_OK  # the parent has gone
            pause_s = self._turn()
            self._tell()
        while self._turn() == 0.0:
            self._handle_message(0.0)
        self._settle(thorough=True)
        self._tell(at_once=True)
        return EXIT_OK

    def _handle_message(self, pause_s: float) -> bool:
        """Does what the parent has said, if anything within the pause; whether it is there."""
        while select.select([self._orders], [], [], pause_s)[0]:
            pause_s = 0.0
            match self._orders.receive():
                case None:
                    return False
                case [channel.PING]:
                    self._orders.send(channel.PONG)
                case [channel.STOP]:
                    self._stopping = True
                case [channel.CHANGE, dict(changes)]:
                    self._change(changes)
        return True

    def _change(self, changes: dict[str, Any]) -> None:
        set_up_logging(changes["verbosity"], changes["log_format"], SOURCE)
        self._backlog = changes["backlog"]
        self._store.change_retention(StoreSettings.from_message(changes["history"]).retention())

    def _turn(self) -> float:
        """One piece of work; how long to wait until the next, seconds."""
        # Before it reads: a worker that is ready only then has jobs that have not been seen.
        can_be_all = not self._has_caught_up and self._archive.all_recovered()
        try:
            more = self._archive.step()
            self._note_room(None)
        except errors.StoreFullError as error:
            self._note_room(str(error))
            return FULL_PAUSE_S
        self._tell_faults()
        pause_s = self._courtesy.pause_s()
        if self._archive.trouble:
            self._note_trouble(self._archive.trouble)
            return TROUBLE_PAUSE_S
        if not more:
            if can_be_all:
                self._archive.drop_unseen_jobs()
                self._has_caught_up = True
            return IDLE_S
        return 0.0 if self._stopping or self._behind > URGENT * self._backlog else pause_s

    def _note_room(self, refused: str | None) -> None:
        if refused and not self._refused:
            LOGGER.warning(NO_ROOM_TEXT, refused)
        elif self._refused and not refused:
            LOGGER.info("the history has room again")
        self._refused = refused or ""

    def _note_trouble(self, text: str) -> None:
        if text != self._trouble:
            LOGGER.error("a binlog cannot be read, which is tried again: %s", text)
        self._trouble = text

    def _settle(self, *, thorough: bool) -> None:
        try:
            self._archive.release_files(thorough)
        except errors.StoreFullError as error:
            self._note_room(str(error))

    def _tell_faults(self) -> None:
        for text in self._archive.faults():
            self._faults += 1
            if self._faults <= TOLD_FAULTS:
                LOGGER.warning("%s; what it was is not in the history", text)
            elif self._faults == TOLD_FAULTS + 1:
                LOGGER.warning("more such places are only counted")

    def _tell(self, at_once: bool = False) -> None:
        """Lets useless files go and tells the parent where things stand, every now and then."""
        now_mono = time.monotonic()
        if not at_once and now_mono - self._told_mono < STATUS_S:
            return
        self._told_mono = now_mono
        is_much = self._archive.removable_bytes() > CROWDED * self._backlog
        if is_much or now_mono - self._settled_mono >= SETTLE_S:
            self._settled_mono = now_mono
            self._settle(thorough=False)
        lives = self._archive.job_stats
        self._behind = self._archive.behind()
        self._orders.send(
            channel.STATUS,
            {
                "archived": self._archive.archived,
                "behind_bytes": self._behind,
                "freed_bytes": self._archive.freed_bytes,
                "open_jobs": lives.open,
                "orphans": lives.orphans,
                "bodies_left_out": lives.left_out,
                "faults": self._faults,
                "missing_bytes": self._archive.missing_bytes,
                "refused": self._refused,
                "store_bytes": self._store.disk_bytes(),
            },
        )
