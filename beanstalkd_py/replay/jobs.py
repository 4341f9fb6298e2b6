"""What of a message becomes a job again. It must not know servers."""

from __future__ import annotations

from dataclasses import dataclass

from beanstalkd_py.admin.job_record import (
    DEFAULT_DELAY_S,
    DEFAULT_PRI,
    DEFAULT_TTR_S,
    UINT32_MAX,
    Job,
)
from beanstalkd_py.admin.statistics import READY
from beanstalkd_py.history.message import Stored

BODY_BYTES = "body-bytes"
"""The property of a message whose body was left out: how large it was."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What jobs get instead of what they had; None leaves it. Without `keep_delay` none has one."""

    pri: int | None = None
    delay_s: int | None = None
    ttr_s: int | None = None
    keep_delay: bool = False


def bytes_left_out(message: Stored) -> int | None:
    """The size of a body that the store does not have. None: it has the body."""
    size = message.properties.get(BODY_BYTES, "")
    is_missing = size.isascii() and size.isdigit() and int(size[:20]) != len(message.body)
    return int(size[:20]) if is_missing else None


def job_of(message: Stored, tube: str, terms: Terms) -> Job:
    """The job to put. What a message does not say, as those of RocketMQ, is as `put` has it."""
    delay_s = terms.delay_s
    if delay_s is None:
        kept = _number(message, "delay", DEFAULT_DELAY_S)
        delay_s = kept if terms.keep_delay else DEFAULT_DELAY_S
    pri, ttr_s = terms.pri, terms.ttr_s
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
    text = message.properties.get(name, "")
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > UINT32_MAX:
        return default
    return int(text)
