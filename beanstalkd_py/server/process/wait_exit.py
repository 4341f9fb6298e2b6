"""The end of a process whose channel has closed: waiting for its exit status.

Must not know what the process was for.
"""

from __future__ import annotations

import time

import gevent

from beanstalkd_py.server.process.launch import ChildProcess

STEP_S = 0.002


def reap(process: ChildProcess, limit_s: float | None = None) -> int:
    """Its exit status, as ChildProcess.reap has it. Killed if it has not ended in time."""
    killed_after_mono = None if limit_s is None else time.monotonic() + limit_s
    while (status := process.reap()) is None:
        if killed_after_mono is not None and time.monotonic() > killed_after_mono:
            process.kill()
        gevent.sleep(STEP_S)
    return status
