"""Checks of the running server: its processes, its systemd unit, and its control socket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.control.client import ControlClient, connect
from beanstalkd_py.doctor.finding import Finding, ok, unknown, warning
from beanstalkd_py.doctor.machine import read_number, read_text
from beanstalkd_py.plural import counted


@dataclass(frozen=True, slots=True)
class ServerProcesses:
    """The process ids of a server, its systemd unit, and its resident memory in bytes."""

    pid: int
    children: tuple[int, ...]
    unit: str | None
    memory: int | None
    oom_adjustment: int | None


def inspect_server(pid: int, proc: Path) -> ServerProcesses:
    folder = proc / str(pid)
    units = re.findall(r"/([^/\s]+\.service)", read_text(folder / "cgroup"))
    children = tuple(map(int, read_text(folder / "task" / str(pid) / "children").split()))
    sizes = [_resident_bytes(proc / str(process)) for process in (pid, *children)]
    known = [size for size in sizes if size is not None]
    return ServerProcesses(
        pid,
        children,
        units[-1] if units else None,
        sum(known) if known else None,
        read_number(folder / "oom_score_adj"),
    )


def _resident_bytes(folder: Path) -> int | None:
    found = re.search(r"^VmRSS:\s+(\d+) kB", read_text(folder / "status"), re.MULTILINE)
    return int(found[1]) << 10 if found else None


def check_control(
    address: str, control: str | None, timeout_s: float
) -> tuple[Finding, int | None]:
    """Check the control socket and the workers; also return the server's process id."""
    name = "control socket"
    if control == "none":
        advice = "remove --control none: workers, conns, drain, compact and top need the socket"
        return warning(name, "disabled by --control none", advice), None
    try:
        client = ControlClient(Path(control), timeout_s) if control else connect(address, timeout_s)
        with client:
            rows = list(client.parts("workers"))
            pid = client.server_pid() or None
    except errors.NoControlError as error:
        found, _, advice = str(error).partition("; ")
        return unknown(name, found, advice), None
    except errors.ControlError as error:
        advice = "see the server's log; restart the server if it hangs"
        return warning(name, str(error), advice), None
    down = [row["worker"] for row in rows if row["state"] != "serving"]
    restarts = sum(row["restarts"] for row in rows)
    found = (
        f"process {pid} answers, {len(rows) - len(down)} of {counted(len(rows), 'worker')} serving"
    )
    if down or restarts:
        found += f", {counted(restarts, 'restart')}"
        advice = "see the server's log for why workers ended: journalctl -u UNIT"
        return warning(name, found, advice), pid
    return ok(name, found), pid
