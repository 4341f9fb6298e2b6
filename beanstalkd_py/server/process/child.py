"""What every process that the parent starts does first and last: obey its channel, not outlive it.

Must not know what the process is for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from beanstalkd_py.server.logging.setup import flush_log
from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.exit_status import EXIT_ERROR
from beanstalkd_py.server.process.launch import PARENT_SIGNALS
from beanstalkd_py.server.process.privileges import die_with_parent


def ignore_server_signals() -> None:
    """From now on signals for the server are ignored here, and the parent's end is this one's."""
    die_with_parent()
    for number in PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # The parent started us with these blocked; ignored is enough now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)


def configuration(channel_: channel.Channel) -> dict[str, Any] | None:
    """What the parent has said first; None if it has gone already."""
    match channel_.receive():
        case [channel.CONFIGURE, dict(values)] if values["parent_pid"] == os.getppid():
            return values
        case _:
            return None


def run_and_exit(main: Callable[[list[str]], int], arguments: list[str]) -> None:
    """The whole of such a process: `main` with its arguments, and the end with its status."""
    status = EXIT_ERROR
    try:
        status = main(arguments)
    finally:
        # The next server waits for nothing that an interpreter tidies up at its end.
        flush_log()
        sys.stderr.flush()
        if sys.exc_info()[0] is None:
            os._exit(status)
