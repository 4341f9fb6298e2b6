"""The archiver process, from exec to exit. It schedules beanstalkd_py.archiver and reports on it.

The archiver reads binlogs up to their durable positions, without locks and at a low priority. The
process has no event loop; the store has threads.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.archiver.archive import Archive, describe_losses
from beanstalkd_py.archiver.cpu_throttle import CpuThrottle
from beanstalkd_py.archiver.store_settings import UMASK
from beanstalkd_py.binlog.ownership import create_as_owner_of
from beanstalkd_py.core.shared_memory import BinlogPosition, durable_position
from beanstalkd_py.history.files.health import is_no_space
from beanstalkd_py.history.store import Store
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import LOGGER, log_in_background, set_up_logging
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.messages import ArchiverStatus, ProcessConfig
from beanstalkd_py.server.process.priority import lower_priority
from beanstalkd_py.server.process.shared_memory import SharedMemory

STORE_FULL_TEXT = "the history is full, finished jobs wait in the binlog: %s"
SOURCE = LogSource(name="archiver")
IDLE_S = 0.1
"""The pause when there is nothing to archive."""
READ_ERROR_PAUSE_S = 0.5
FULL_PAUSE_S = 1.0
STATUS_S = 1.0
RELEASE_S = 5.0
"""The interval of removing archived files."""
RELEASE_AT_ONCE = 0.25
"""The share of the backlog limit above which archived files are removed at once."""
UNTHROTTLED = 0.5
"""The share of the backlog limit above which the archiver does not throttle itself."""
MAX_LOGGED_FAULTS = 20


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: ProcessConfig
) -> int:
    os.close(connections_fd)
    set_up_logging(config.options.verbosity, config.options.log_format, SOURCE)
    log_in_background()
    lower_priority("archiver")
    os.umask(UMASK)
    create_as_owner_of(config.options.store_settings().folder)
    try:
        return _run(parent, config, shared)
    except (errors.BeanstalkdError, OSError) as error:
        parent.send(channel.FAILED, EXIT_ERROR, str(error))
        return EXIT_ERROR


def _run(parent: channel.Channel, config: ProcessConfig, shared: SharedMemory) -> int:
    folders = [Path(folder) for folder in config.folders]
    settings = config.options.store_settings()

    def open_archive() -> tuple[Store, Archive]:
        store = Store.open(settings.folder, settings.options())
        try:
            archive = Archive(store, folders, position)
        except BaseException:
            store.abandon()
            raise
        for text in describe_losses(store, archive):
            LOGGER.error("%s", text)
        return store, archive

    def position(index: int) -> BinlogPosition:
        while (durable := durable_position(shared.counters(index))) is None:
            continue  # the worker is changing it
        return durable

    opened = _open_when_possible(parent, open_archive)
    if opened is None:
        return EXIT_OK
    store, archive = opened
    try:
        with store:
            parent.send(channel.READY)
            return Archiver(parent, archive, store, config.options.history_backlog).run()
    finally:
        archive.close()


def _open_when_possible(
    parent: channel.Channel, open_archive: Callable[[], tuple[Store, Archive]]
) -> tuple[Store, Archive] | None:
    """Open the store as soon as the disk has space; return None after a stop."""
    logged = False
    while True:
        try:
            return open_archive()
        except (errors.StoreFullError, OSError) as error:
            if isinstance(error, OSError) and not is_no_space(error):
                raise
            refused = str(error)
        if not logged:
            LOGGER.warning(STORE_FULL_TEXT, refused)
        logged = True
        parent.send(channel.STATUS, asdict(ArchiverStatus(refused=refused)))
        if select.select([parent], [], [], FULL_PAUSE_S)[0]:
            match parent.receive():
                case None | [channel.STOP]:
                    return None


class Archiver:
    """The loop: handles messages, archives, and reports the status. `backlog_limit` is bytes."""

    def __init__(
        self, parent: channel.Channel, archive: Archive, store: Store, backlog_limit: int
    ) -> None:
        self._parent = parent
        self._archive = archive
        self._store = store
        self._reported_mono = 0.0
        self._released_mono = 0.0
        self._faults = 0
        self._refused = ""
        self._read_error = ""
        self._has_caught_up = False
        self._stopping = False
        self._throttle = CpuThrottle()
        self._behind = 0
        self._backlog_limit = backlog_limit

    def run(self) -> int:
        """Archive until the parent sends STOP, then the rest; return the exit status."""
        pause_s = 0.0
        while not self._stopping:
            if not self._handle_messages(pause_s):
                return EXIT_OK  # the parent is gone
            pause_s = self._step()
            self._report()
        while self._step() == 0.0:
            self._handle_messages(0.0)
        self._release_files(thorough=True)
        self._report(at_once=True)
        return EXIT_OK

    def _handle_messages(self, pause_s: float) -> bool:
        """Handle messages, waiting for the first; return False if the parent is gone."""
        while select.select([self._parent], [], [], pause_s)[0]:
            pause_s = 0.0
            match self._parent.receive():
                case None:
                    return False
                case [channel.PING]:
                    self._parent.send(channel.PONG)
                case [channel.STOP]:
                    self._stopping = True
                case [channel.CHANGE, dict(values)]:
                    self._change(ServeOptions(**values))
        return True

    def _change(self, options: ServeOptions) -> None:
        set_up_logging(options.verbosity, options.log_format, SOURCE)
        self._backlog_limit = options.history_backlog
        self._store.change_retention(options.store_settings().retention())

    def _step(self) -> float:
        """Archive some entries; return the pause before the next step."""
        # Check before reading, because a worker that recovers after the read has unread jobs.
        all_recovered = not self._has_caught_up and self._archive.all_recovered()
        try:
            more = self._archive.step()
            self._log_refusal("")
        except errors.StoreFullError as error:
            self._log_refusal(str(error))
            return FULL_PAUSE_S
        self._log_faults()
        pause_s = self._throttle.pause_s()
        if self._archive.read_error:
            self._log_read_error(self._archive.read_error)
            return READ_ERROR_PAUSE_S
        if not more:
            if all_recovered:
                self._archive.drop_unseen_jobs()
                self._has_caught_up = True
            return IDLE_S
        unthrottled = self._stopping or self._behind > UNTHROTTLED * self._backlog_limit
        return 0.0 if unthrottled else pause_s

    def _log_refusal(self, refused: str) -> None:
        if refused and not self._refused:
            LOGGER.warning(STORE_FULL_TEXT, refused)
        elif self._refused and not refused:
            LOGGER.info("the history has space again")
        self._refused = refused

    def _log_read_error(self, text: str) -> None:
        if text != self._read_error:
            LOGGER.error("cannot read a binlog, retrying: %s", text)
        self._read_error = text

    def _release_files(self, *, thorough: bool) -> None:
        try:
            self._archive.release_files(thorough)
        except errors.StoreFullError as error:
            self._log_refusal(str(error))

    def _log_faults(self) -> None:
        for text in self._archive.faults():
            self._faults += 1
            if self._faults <= MAX_LOGGED_FAULTS:
                LOGGER.warning("%s; the damaged entries are missing from the history", text)
            elif self._faults == MAX_LOGGED_FAULTS + 1:
                LOGGER.warning("further damaged places are counted, but not logged")

    def _report(self, at_once: bool = False) -> None:
        """Remove archived files and send the status, at intervals."""
        now_mono = time.monotonic()
        if not at_once and now_mono - self._reported_mono < STATUS_S:
            return
        self._reported_mono = now_mono
        is_crowded = self._archive.removable_bytes() > RELEASE_AT_ONCE * self._backlog_limit
        if is_crowded or now_mono - self._released_mono >= RELEASE_S:
            self._released_mono = now_mono
            self._release_files(thorough=False)
        stats = self._archive.job_stats
        self._behind = self._archive.behind()
        status = ArchiverStatus(
            archived=self._archive.archived,
            freed_bytes=self._archive.freed_bytes,
            orphans=stats.orphans,
            bodies_left_out=stats.left_out,
            faults=self._faults,
            missing_bytes=self._archive.missing_bytes,
            behind_bytes=self._behind,
            open_jobs=stats.open,
            refused=self._refused,
            store_bytes=self._store.disk_bytes(),
        )
        self._parent.send(channel.STATUS, asdict(status))
