"""The process of the console, from exec to exit. entry_point.py has patched the standard library.

It uses the server like any client, and its control socket. It reads the folders of the history and
of the binlog without their locks.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import gevent
from gevent.event import Event

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address, parse_address
from beanstalkd_py.console.application import Console
from beanstalkd_py.console.process import new_console, new_server
from beanstalkd_py.console.target import Target
from beanstalkd_py.server.logging.lines import LogSource
from beanstalkd_py.server.logging.setup import (
    LOGGER,
    exit_on_error,
    log_in_background,
    set_up_logging,
)
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR, EXIT_OK
from beanstalkd_py.server.process.messages import ConsoleConfig, ProcessConfig
from beanstalkd_py.server.process.priority import lower_priority
from beanstalkd_py.server.process.shared_memory import SharedMemory

SOURCE = LogSource(name="console")
UMASK = 0o077
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def main(
    parent: channel.Channel, connections_fd: int, shared: SharedMemory, config: ProcessConfig
) -> int:
    os.close(connections_fd)
    set_up_logging(config.options.verbosity, config.options.log_format, SOURCE)
    log_in_background()
    lower_priority("console")
    os.umask(UMASK)
    match parent.receive_with_fd():
        case [channel.CONSOLE, dict(values)], int(fd):
            watched = ConsoleConfig(**values)
        case _:
            return EXIT_OK  # the parent is gone, or stops
    try:
        console = new_console(config.options.console_settings(), [_target(config.options, watched)])
    except (errors.BeanstalkdError, OSError) as error:
        parent.send(channel.FAILED, EXIT_ERROR, str(error))
        return EXIT_ERROR
    return _Process(parent, console).run(socket.socket(fileno=fd))


def _target(options: ServeOptions, watched: ConsoleConfig) -> Target:
    control, history, binlog = (
        Path(path) if path is not None else None
        for path in (watched.control, options.history, options.binlog_dir)
    )
    return Target(_reachable(watched.address), control, None, history, binlog)


def _reachable(listening: str) -> Address:
    """Return the address for a client of this machine."""
    address = parse_address(listening)
    return replace(address, host=LOOPBACK.get(address.host, address.host))


class _Process:
    def __init__(self, parent: channel.Channel, console: Console) -> None:
        self._parent = parent
        self._console = console
        self._stop = Event()

    def run(self, listener: socket.socket) -> int:
        """Serve until the parent sends STOP or ends; return the exit status."""
        server = new_server(self._console, listener)
        server.start()
        self._parent.send(channel.READY)
        gevent.spawn(partial(exit_on_error, self._read_channel, "console"))
        self._stop.wait()
        server.stop(0)
        self._console.stop()
        return EXIT_OK

    def _read_channel(self) -> None:
        while not self._stop.is_set():
            match self._parent.receive():
                case None | [channel.STOP]:
                    self._stop.set()
                case [channel.PING]:
                    self._parent.send(channel.PONG)
                case [channel.CHANGE, dict(values)]:
                    self._change(ServeOptions(**values))
                case _:
                    LOGGER.warning("ignored an unknown message of the parent")

    def _change(self, options: ServeOptions) -> None:
        """Apply new options of the log, and open the users and the audit log again."""
        set_up_logging(options.verbosity, options.log_format, SOURCE)
        try:
            self._console.change_accounts(options.console_settings().accounts())
        except errors.UsageError as error:
            LOGGER.error("reload: %s; keeping the users of before", error)
        try:
            self._console.reopen_audit_log()
        except OSError as error:
            LOGGER.error("reload: cannot open the audit log again: %s", error)
