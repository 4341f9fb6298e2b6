"""The modules that a start imports, because imports are most of the time that a start takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BY_CLICK = {"click", "difflib", "gettext", "uuid", "beanstalkd_py.cli.server.serve"}
"""Modules that no start imports whose command line `fast_options` accepts."""

HEAVY = {"greenstalk", "prometheus_client", "pyarrow", "rich", "ssl"}
"""Modules that only other commands, or options of `serve`, need."""

AFTER_THE_SOCKETS = {
    *("_cffi_backend", "_ctypes", "gevent", "_hashlib", "encodings.idna", "ipaddress", "json"),
    *("msgpack", "pathlib", "tomllib", "urllib.parse"),
    *("datetime", "logging", "string", "textwrap", "threading", "traceback"),
    *("beanstalkd_py.core._core", "beanstalkd_py.binlog.layout"),
}
"""Modules that a start may import only once clients can connect."""


def imported(*command: str) -> set[str]:
    """The modules that Python imports for this command."""
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", *command],
        capture_output=True,
        text=True,
        timeout=30,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_a_start_imports_little_before_clients_can_connect() -> None:
    """The start ends where it would bind its socket."""
    script = """
import os, sys
from beanstalkd_py.__main__ import main
from beanstalkd_py.server.accept import listeners
listeners.bind = lambda address: os._exit(0)
sys.argv[1:] = ["-l", "127.0.0.1", "-p", "0"]
main()
"""
    modules = imported("-c", script)
    assert "beanstalkd_py.server.parent.start" in modules
    assert modules & (BY_CLICK | HEAVY | AFTER_THE_SOCKETS) == set()


def test_a_start_imports_click_a_second_after_clients_are_served(tmp_path: Path) -> None:
    """A reload needs it, and must not import files of a version that was installed meanwhile."""
    words = ("-m", "beanstalkd_py", "-l", f"unix:{tmp_path}/socket", "--control", "none")
    command = [sys.executable, "-P", "-X", "importtime", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        modules: set[str] = set()
        for line in server.stderr:
            if "ready: " in line:
                assert "gevent" in modules
                assert modules & BY_CLICK == set()
            modules.add(line.rpartition("|")[2].strip())
            if modules >= BY_CLICK - {"difflib"}:
                break
        server.terminate()
        server.stderr.read()
    assert server.returncode == 0


def test_parent_and_worker_import_nothing_that_is_for_other_commands() -> None:
    modules = ("parent.start", "parent.loop", "worker.process")
    names = ", ".join(f"beanstalkd_py.server.{name}" for name in modules)
    modules = imported("-c", f"import {names}")
    assert "gevent" in modules
    assert modules & HEAVY == set()
    worker = imported("-c", "import beanstalkd_py.server.worker.process")
    assert worker & {"click", "beanstalkd_py.cli", "json", "pathlib"} == set()
