"""A job with its body, as a record and as one line of JSON.

The help of `beanstalkd-py export` describes a line; `import` ignores its id and tube.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from beanstalkd_py import errors
from beanstalkd_py.admin.statistics import DELAYED, FREE_STATES, READY, JobStats
from beanstalkd_py.quantities import UINT32_MAX

DEFAULT_PRI = 65536
DEFAULT_DELAY_S = 0
DEFAULT_TTR_S = 60

_KEYS = ("id", "tube", "state", "pri", "delay", "ttr", "body", "body_base64")


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its body; times in seconds."""

    id: int
    tube: str
    state: str
    pri: int
    delay_s: int
    ttr_s: int
    body: bytes

    @classmethod
    def of(cls, stats: JobStats, body: bytes) -> Job:
        return cls(
            id=stats.id,
            tube=stats.tube,
            state=stats.state,
            pri=stats.pri,
            delay_s=stats.remaining_delay_s,
            ttr_s=stats.ttr_s,
            body=body,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tube": self.tube,
            "state": self.state,
            "pri": self.pri,
            "delay": self.delay_s,
            "ttr": self.ttr_s,
            **body_to_json(self.body),
        }


def put_command(body: bytes, pri: int, delay_s: int, ttr_s: int) -> bytes:
    return b"put %d %d %d %d\r\n%b" % (pri, delay_s, ttr_s, len(body), body)


def body_to_json(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def parse_job(line: bytes) -> Job:
    """Parse one line. Raises ToolUsageError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise errors.ToolUsageError(f"invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise errors.ToolUsageError("the line is not a JSON object")
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise errors.ToolUsageError(f"unknown key {unknown[0]!r}; use {', '.join(_KEYS)}")
    state = value.get("state", READY)
    if state not in FREE_STATES:
        raise errors.ToolUsageError(f"state must be one of {', '.join(FREE_STATES)}")
    delay_s = _number(value, "delay", DEFAULT_DELAY_S)
    if delay_s and state != DELAYED:
        raise errors.ToolUsageError(f"a {state} job has no delay; use delay 0 or state delayed")
    return Job(
        id=0,
        tube="",
        state=state,
        pri=_number(value, "pri", DEFAULT_PRI),
        delay_s=delay_s,
        ttr_s=_number(value, "ttr", DEFAULT_TTR_S),
        body=_body(value),
    )


def _number(value: dict[str, Any], key: str, default: int) -> int:
    number = value.get(key, default)
    # bool is a subclass of int.
    if type(number) is not int or not 0 <= number <= UINT32_MAX:
        raise errors.ToolUsageError(f"{key} must be a whole number from 0 to {UINT32_MAX}")
    return number


def _body(value: dict[str, Any]) -> bytes:
    if ("body" in value) == ("body_base64" in value):
        raise errors.ToolUsageError("exactly one of body and body_base64 is required")
    text = value.get("body", value.get("body_base64"))
    if not isinstance(text, str):
        raise errors.ToolUsageError("the body must be a string")
    try:
        return text.encode() if "body" in value else base64.b64decode(text, validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise errors.ToolUsageError(f"invalid body: {error}") from error
