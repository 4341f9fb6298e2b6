"""The life of a job as its message tells it, for people: an event per line, with times.

The property `timeline` has events with ; between them, each `KIND@NANOSECONDS` since 1970 (`?`: not
known) and further fields after commas; `...N` stands for N events that were left out. What is not
like that is shown as it is.
"""

from __future__ import annotations

import datetime
import re

PROPERTY = "timeline"

_EVENT = re.compile(r"([a-z]+)@(\d{1,19}|\?)((?:,[a-z]+=\d+)*)")
_LEFT_OUT = re.compile(r"\.\.\.(\d+)")
_EPOCH = datetime.datetime(1970, 1, 1)
_NS_PER_US = 1000
_NS_PER_S = 10**9


def lines_of(timeline: str) -> list[str] | None:
    """A line for each event, with the seconds since the one before; None if it is no timeline."""
    lines: list[str] = []
    before: int | None = None
    for text in timeline.split(";"):
        if left_out := _LEFT_OUT.fullmatch(text):
            lines.append(f"{'':27}  {'':>12}  ({left_out[1]} events are left out)")
            before = None
            continue
        event = _EVENT.fullmatch(text)
        if event is None:
            return None
        kind, at, more = event.groups()
        now = None if at == "?" else int(at)
        since = "" if before is None or now is None else f"+{(now - before) / _NS_PER_S:.6f}"
        lines.append(f"{_time(now):27}  {since:>12}  {kind}{more.replace(',', ' ')}")
        before = now
    return lines


def _time(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "?"
    moment = _EPOCH + datetime.timedelta(microseconds=nanoseconds // _NS_PER_US)
    return moment.isoformat(timespec="microseconds") + "Z"
