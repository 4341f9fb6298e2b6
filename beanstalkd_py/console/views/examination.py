"""The findings of the doctor about a machine and its server, which take seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import gevent
from gevent import get_hub

from beanstalkd_py.console.target import Target
from beanstalkd_py.console.threads import call_in_thread
from beanstalkd_py.doctor.examination import BOUNDED, Subject, examine
from beanstalkd_py.doctor.finding import Verdict


@dataclass(frozen=True, slots=True)
class FindingView:
    check: str
    level: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ExaminationView:
    """The last findings, when they were found (seconds since 1970), and whether others follow."""

    findings: Sequence[FindingView]
    at: float | None
    running: bool


LEVELS = {
    Verdict.OK: "ok",
    Verdict.UNKNOWN: "unknown",
    Verdict.WARNING: "advice",
    Verdict.PROBLEM: "problem",
}


class Examination:
    """One examination at a time, in a thread, however many viewers ask."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._greenlet: gevent.Greenlet[[], None] | None = None
        self._findings: Sequence[FindingView] = ()
        self._at: float | None = None
        self._error: Exception | None = None

    def view(self) -> ExaminationView:
        """Return what is known; begin if nothing is. Raises the error of the last examination."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._at is None:
            self.begin()
        return ExaminationView(self._findings, self._at, self._greenlet is not None)

    def begin(self) -> None:
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            self._findings = call_in_thread(get_hub().threadpool, lambda: found_about(self._target))
            self._at = time.time()
        except Exception as error:
            self._error = error
        self._greenlet = None


def found_about(target: Target) -> list[FindingView]:
    """Check the machine and the server; takes seconds."""
    subject = Subject(
        address=target.name,
        binlog_dir=target.binlog,
        file_size=0,
        workers=None,
        user=None,
        control=None if target.control is None else str(target.control),
        read_bytes=BOUNDED,
        timeout_s=10.0,
    )
    return [
        FindingView(one.check, LEVELS[one.verdict], one.found, one.advice)
        for one in examine(subject)
    ]
