"""The modules that a start imports, because imports are most of the time that a start takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = {"greenstalk", "prometheus_client", "pyarrow", "rich", "ssl"}
"""Modules that only other commands, or options of `serve`, need."""

AFTER_THE_SOCKETS = {
    *("_cffi_backend", "_ctypes", "gevent", "_hashlib", "encodings.idna", "ipaddress", "json"),
    *("msgpack", "pathlib", "tomllib", "urllib.parse"),
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


def test_a_start_imports_little_before_clients_can_connect(tmp_path: Path) -> None:
    """Binding fails, so that the start ends there."""
    words = ("serve", "--workers", "1", "-l", f"unix:{tmp_path}/missing/socket")
    modules = imported("-m", "beanstalkd_py", *words)
    assert "beanstalkd_py.server.listeners" in modules
    assert modules & (HEAVY | AFTER_THE_SOCKETS) == set()


def test_parent_and_worker_import_nothing_that_is_for_other_commands() -> None:
    names = ", ".join(f"beanstalkd_py.server.{name}" for name in ("start", "supervisor", "worker"))
    modules = imported("-c", f"import {names}")
    assert "gevent" in modules
    assert modules & HEAVY == set()
    worker = imported("-c", "import beanstalkd_py.server.worker")
    assert worker & {"click", "beanstalkd_py.cli", "json"} == set()
