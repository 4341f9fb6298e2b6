"""A model of the messages that binlog entries make, as a dict of jobs; entries are those of the
independent reader, so that nothing here is the core's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from binlog.reader import CRC_AT, HEADER, MARK, Entry
from core.history.simulated_binlogs import (
    COUNTERS,
    MOST_BODY,
    SECOND,
    JobMessage,
    crc32c,
    timeline,
    topic_of,
)


@dataclass
class _Job:
    full: Entry
    last: Entry
    events: list[str] = field(default_factory=list)


def _is_sound(entry: Entry) -> bool:
    """Marked, and its checksum is right: ours, with the time of the event."""
    at = HEADER + len(entry.tube or b"") + CRC_AT
    blank = entry.raw[:at] + bytes(4) + entry.raw[at + 4 :]
    return entry.mark[:1] == bytes([MARK]) and int.from_bytes(entry.crc, "little") == crc32c(blank)


def _time(entry: Entry) -> int | None:
    before = {"delayed": entry.delay, "reserved": entry.ttr}.get(entry.state)
    if before is not None:
        return entry.deadline_at - before
    return entry.deadline_at if _is_sound(entry) else None


def _seconds(nanoseconds: int) -> int:
    return -(-nanoseconds // SECOND)


def _kind(last: Entry, entry: Entry) -> str:
    def grown(name: str) -> bool:
        return bool(getattr(entry, name) > getattr(last, name))

    if entry.state == "ready":
        counted = {"release": "releases", "timeout": "timeouts", "kick": "kicks"}
        return next((kind for kind, name in counted.items() if grown(name)), "return")
    if entry.state == "reserved":
        return "reserve" if grown("reserves") else "touch"
    return {"invalid": "delete", "buried": "bury", "delayed": "release"}[entry.state]


def _numbers(entry: Entry, *, with_delay: bool) -> str:
    delay = f",delay={_seconds(entry.delay)}" if with_delay and entry.delay else ""
    return f",pri={entry.pri}{delay}"


def _happen(job: _Job, entry: Entry) -> None:
    kind, at = _kind(job.last, entry), _time(entry)
    if job.last.state == "delayed" and kind != "kick" and (at or 0) > job.last.deadline_at:
        job.events.append(f"due@{job.last.deadline_at}")
    more = _numbers(entry, with_delay=kind == "release") if kind in ("release", "bury") else ""
    job.events.append(f"{kind}@{'?' if at is None else at}{more}")


def messages(entries: Iterable[Entry], key: str, most_events: int = 256) -> list[JobMessage]:
    """One message for each job that has ended."""
    jobs: dict[int, _Job] = {}
    found = []
    for entry in entries:
        job = jobs.get(entry.id)
        if entry.full and job is None:
            job = jobs[entry.id] = _Job(entry, entry)
            job.events.append(f"put@{entry.created_at}{_numbers(entry, with_delay=True)}")
            continue
        if job is None:
            continue
        if entry.full:
            job.full = entry
            if any(getattr(entry, name) > getattr(job.last, name) for name in COUNTERS):
                _happen(job, entry)
        else:
            _happen(job, entry)
        job.last = entry
        if entry.state == "invalid":
            del jobs[entry.id]
            found.append(_message(job, entry, key, most_events))
    return found


def _message(job: _Job, entry: Entry, key: str, most_events: int) -> JobMessage:
    body = job.full.body
    assert job.full.tube is not None and body is not None
    properties = {
        "TUBE": job.full.tube.decode(),
        "KEYS": str(entry.id),
        "TAGS": "deleted",
        "UNIQ_KEY": f"{key}-{entry.file}-{entry.offset}",
        "pri": str(entry.pri),
        "delay": str(_seconds(entry.delay)),
        "ttr": str(_seconds(entry.ttr)),
        **{name: str(getattr(entry, name)) for name in COUNTERS},
        "timeline": timeline(job.events, most_events),
    }
    if len(body) > MOST_BODY:
        properties["body-bytes"] = str(len(body))
        body = b""
    place = entry.file, entry.offset
    born = entry.created_at // 10**6
    return JobMessage(
        place, topic_of(job.full.tube), properties, body, born, max(entry.reserves - 1, 0)
    )
