"""The start of every child process: signals, the parent's death, the configuration."""

from __future__ import annotations

import os
import signal
from typing import TypeVar

from beanstalkd_py.server.process import channel
from beanstalkd_py.server.process.launch import PARENT_SIGNALS
from beanstalkd_py.server.process.messages import Payload
from beanstalkd_py.server.process.privileges import die_with_parent

P = TypeVar("P", bound=Payload)


def ignore_server_signals() -> None:
    """Ignore the signals that the parent handles, and end with the parent."""
    die_with_parent()
    for number in PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # launch.py starts a child with these signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)


def receive_config(parent: channel.Channel, kind: type[P]) -> P | None:
    """Return the first message of the parent, or None if the parent is gone."""
    match parent.receive():
        case [channel.CONFIGURE, dict(values)] if values["parent_pid"] == os.getppid():
            return kind.decode(values)
        case _:
            return None
