"""Conversion of a message of the history to a job."""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py.admin.job_record import DEFAULT_DELAY_S, DEFAULT_PRI, DEFAULT_TTR_S, Job
from beanstalkd_py.admin.statistics import READY
from beanstalkd_py.history.message import Stored
from beanstalkd_py.quantities import UINT32_MAX

BODY_BYTES = "body-bytes"
"""Property of a message without its body: the size of the body."""


@dataclass(frozen=True, slots=True)
class JobOverrides:
    """Values that replace those of the jobs; None keeps them. Delays are 0 without `keep_delay`."""

    pri: int | None = None
    delay_s: int | None = None
    ttr_s: int | None = None
    keep_delay: bool = False


def missing_body_size(message: Stored) -> int | None:
    """Return the size of a body that the store does not have; None if it has the body."""
    size = message.number(BODY_BYTES)
    return None if size == len(message.body) else size


def job_of(message: Stored, tube: str, overrides: JobOverrides) -> Job:
    """Return the job to put. Missing properties, as in RocketMQ's messages, get defaults."""
    delay_s = overrides.delay_s
    if delay_s is None:
        original_s = _number(message, "delay", DEFAULT_DELAY_S)
        delay_s = original_s if overrides.keep_delay else DEFAULT_DELAY_S
    pri, ttr_s = overrides.pri, overrides.ttr_s
    return Job(
        id=0,
        tube=tube,
        state=READY,
        pri=_number(message, "pri", DEFAULT_PRI) if pri is None else pri,
        delay_s=delay_s,
        ttr_s=_number(message, "ttr", DEFAULT_TTR_S) if ttr_s is None else ttr_s,
        body=message.body,
    )


def _number(message: Stored, name: str, default: int) -> int:
    number = message.number(name, UINT32_MAX)
    return default if number is None else number
