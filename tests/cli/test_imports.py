"""Modules imported at a start; imports take most of its time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BY_CLICK = {"click", "difflib", "gettext", "uuid", "beanstalkd_py.cli.server.serve"}
"""Not imported if `fast_options` accepts the command line."""

HEAVY = {"greenstalk", "prometheus_client", "pyarrow", "rich", "ssl"}
"""Required only by other commands or options of `serve`."""

AFTER_THE_SOCKETS = {
    *("_cffi_backend", "_ctypes", "gevent", "_hashlib", "encodings.idna", "ipaddress", "json"),
    *("msgpack", "pathlib", "tomllib", "urllib.parse"),
    *("datetime", "logging", "string", "textwrap", "threading", "traceback"),
    *("beanstalkd_py.core._core", "beanstalkd_py.binlog.layout"),
}
"""Imported only after clients can connect."""


def added(*command: str) -> set[str]:
    """Return the modules that Python imports for this command, but not at each of its starts.

    An editable install has a finder that imports some at each start.
    """
    return imported(*command) - imported("-c", "")


def imported(*command: str) -> set[str]:
    """Return the modules that Python imports for this command."""
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", *command],
        capture_output=True,
        text=True,
        timeout=30,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_a_start_imports_little_before_clients_can_connect() -> None:
    """The start is stopped where it would bind its socket."""
    script = """
import os, sys
from beanstalkd_py.__main__ import main
from beanstalkd_py.server.accept import listeners
listeners.bind = lambda address: os._exit(0)
sys.argv[1:] = ["-l", "127.0.0.1", "-p", "0"]
main()
"""
    modules = added("-c", script)
    assert "beanstalkd_py.server.parent.start" in modules
    assert modules & (BY_CLICK | HEAVY | AFTER_THE_SOCKETS) == set()


def test_a_quick_start_and_a_reload_do_not_import_click(tmp_path: Path) -> None:
    """A reload must not import files of a newer version, which may be installed by then."""
    words = ("-m", "beanstalkd_py", "-l", f"unix:{tmp_path}/socket", "--control", "none")
    command = [sys.executable, "-P", "-X", "importtime", *words]
    environment = {**os.environ, "NOTIFY_SOCKET": f"{tmp_path}/notify"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(environment["NOTIFY_SOCKET"])
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        ) as server:
            assert server.stderr is not None
            modules: set[str] = set()
            for line in server.stderr:
                modules.add(line.rpartition("|")[2].strip())
                if "ready: " in line:
                    server.send_signal(signal.SIGHUP)
                    server.terminate()
        assert server.returncode == 0
        notified.setblocking(False)
        sent: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                sent.append(notified.recv(1000))
    assert any(b"RELOADING=1" in each for each in sent)
    assert "gevent" in modules
    assert modules & BY_CLICK == set()


@pytest.mark.costly
def test_parent_and_worker_import_no_modules_of_other_commands() -> None:
    modules = ("parent.start", "parent.loop", "worker.process")
    names = ", ".join(f"beanstalkd_py.server.{name}" for name in modules)
    modules = added("-c", f"import {names}")
    assert "gevent" in modules
    assert modules & HEAVY == set()
    worker = added("-c", "import beanstalkd_py.server.worker.process")
    assert worker & {"click", "beanstalkd_py.cli", "json", "pathlib"} == set()


def test_ctrl_c_is_handled_before_slow_imports() -> None:
    """`main` handles it, so importing its module must be quick."""
    modules = added("-c", "import beanstalkd_py.__main__")
    assert modules <= {"gc", "beanstalkd_py", "beanstalkd_py.__main__", "__future__"}
