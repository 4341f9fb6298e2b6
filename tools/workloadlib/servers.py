"""The server of a run: started here, or an existing one."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchlib import BenchError
from benchlib.servers import HOST, ServerSpec, running

from . import WorkloadError
from .driver import Target
from .file_preserver import FilePreserver
from .model import Tube
from .run_end import Truncate

OURS = "ours"
C = "c"
REFERENCE = "/usr/bin/beanstalkd"
TIMEOUT_S = 60.0
STATES = ("ready", "delayed", "buried")


@dataclass(frozen=True)
class ServerOptions:
    """`keep`: restore files that the server removes."""

    server: str
    binlog: Path | None
    history: Path | None
    workers: int
    binlog_size: int
    max_job_size: int
    fsync_ms: int
    keep: bool


@contextlib.contextmanager
def running_server(wanted: ServerOptions) -> Iterator[Target]:
    """Raises WorkloadError."""
    if wanted.server not in (OURS, C):
        yield _external(wanted)
        return
    folder = _new_folder(wanted)
    preserver = FilePreserver(folder)
    options = _options(wanted, folder)
    try:
        with running(_spec(wanted.server), Path(tempfile.gettempdir()), *options) as server:
            after_batch = preserver.scan if wanted.keep else lambda: None
            after_batch()
            yield Target(HOST, server.port, True, _truncation(server.port), after_batch)
            after_batch()
        if wanted.keep:
            preserver.restore()
    except BenchError as error:
        raise WorkloadError(str(error)) from error
    finally:
        preserver.discard()


def _external(wanted: ServerOptions) -> Target:
    if wanted.binlog or wanted.history:
        raise WorkloadError("--binlog-dir and --history are for a server that is started here")
    host, colon, port = wanted.server.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise WorkloadError(f"--server {wanted.server}: give ours, c or HOST:PORT")
    return Target(host.strip("[]"), int(port), False, _truncation(int(port), host), lambda: None)


def _new_folder(wanted: ServerOptions) -> Path:
    """Make the binlog folder, which has to be empty so that ids begin at 1."""
    if wanted.binlog is None:
        raise WorkloadError("--binlog-dir DIR is missing: where the server is to write its binlog")
    if wanted.server == C and (wanted.history or wanted.workers > 1):
        raise WorkloadError("--history and --workers are options of ours, not of C beanstalkd")
    folder = wanted.binlog.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise WorkloadError(f"{wanted.binlog} is not empty; give a new folder")
        if wanted.history and wanted.history.is_dir() and any(wanted.history.iterdir()):
            raise WorkloadError(f"{wanted.history} is not empty; give a new folder")
    except OSError as error:
        raise WorkloadError(f"cannot use {wanted.binlog}: {error.strerror}") from error
    return folder


def _spec(server: str) -> ServerSpec:
    if server == C:
        return ServerSpec("beanstalkd", (os.environ.get("BEANSTALKD_PATH", REFERENCE),), Path("/"))
    return ServerSpec("ours", (sys.executable, "-m", "beanstalkd_py", "serve"), Path("/"))


def _options(wanted: ServerOptions, folder: Path) -> tuple[str, ...]:
    options = ["-b", str(folder), "-s", str(wanted.binlog_size), "-z", str(wanted.max_job_size)]
    options += ["-f", str(wanted.fsync_ms)]
    if wanted.server == OURS:
        options += ["--workers", str(wanted.workers)]
        if wanted.history:
            options += ["--history", str(wanted.history.absolute())]
    return tuple(options)


def _truncation(port: int, host: str = HOST) -> Truncate:
    """Return a function that truncates a tube by the control socket."""

    def empty(tube: Tube) -> int:
        from beanstalkd_py import errors
        from beanstalkd_py.admin.address import parse_address
        from beanstalkd_py.admin.connection import connect
        from beanstalkd_py.admin.local_control import connect_control
        from beanstalkd_py.admin.truncate import TruncateResult, truncate_on_server

        address = parse_address(f"{host}:{port}")
        try:
            with connect(address, TIMEOUT_S) as connection:
                control = connect_control(connection, address, TIMEOUT_S)
                if control is None:
                    raise WorkloadError("--truncate needs a server of ours, for its control socket")
                with control:
                    truncated = TruncateResult()
                    truncate_on_server(control, tube.name, STATES, truncated, lambda: False)
                    return truncated.deleted
        except errors.BeanstalkdError as error:
            raise WorkloadError(f"cannot truncate {tube.name}: {error}") from error

    return empty
