"""Entry point of child processes: `python -m ... MODULE CHANNEL CONNECTIONS SHARED`.

MODULE defines `main(parent, connections_fd, shared, config)`, which returns the exit status.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import ModuleType

CONSOLE_MODULE = "beanstalkd_py.server.console.process"
"""As in launch.py, which is not imported here yet. Its libraries block, unless gevent patches."""


def run() -> None:
    if sys.argv[1] == CONSOLE_MODULE:
        # Before all other imports, because they bind functions of the standard library. Threads
        # stay threads, because the one that writes the log may wait for a reader of stderr. The
        # os.close of gevent closes folders later, and a history has more than a process may open.
        from gevent import monkey

        monkey.patch_all(os=False, signal=False, thread=False)
    # Garbage collections during the imports take a tenth of their time and free nothing.
    gc.disable()
    module = importlib.import_module(sys.argv[1])
    from beanstalkd_py.server.logging.setup import flush_log
    from beanstalkd_py.server.process.exit_status import EXIT_ERROR

    gc.freeze()
    gc.enable()
    status = EXIT_ERROR
    try:
        status = _run_main(module, *map(int, sys.argv[2:]))
    finally:
        # Skip the interpreter's cleanup, because the next server waits for the end of this process.
        flush_log()
        sys.stderr.flush()
        if sys.exc_info()[0] is None:
            os._exit(status)


def _run_main(module: ModuleType, channel_fd: int, connections_fd: int, shared_fd: int) -> int:
    import socket

    from beanstalkd_py.server.process import channel
    from beanstalkd_py.server.process.exit_status import EXIT_OK
    from beanstalkd_py.server.process.launch import PARENT_SIGNALS
    from beanstalkd_py.server.process.messages import ProcessConfig
    from beanstalkd_py.server.process.privileges import die_with_parent
    from beanstalkd_py.server.process.shared_memory import SharedMemory

    die_with_parent()
    for number in PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # launch.py starts a child with these signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)
    parent = channel.Channel(socket.socket(fileno=channel_fd))
    shared = SharedMemory(shared_fd)
    os.close(shared_fd)
    match parent.receive():
        case [channel.CONFIGURE, dict(values)] if values["parent_pid"] == os.getppid():
            config = ProcessConfig.decode(values)
            return int(module.main(parent, connections_fd, shared, config))
    return EXIT_OK  # the parent is gone


if __name__ == "__main__":
    run()
