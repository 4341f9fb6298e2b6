"""Data of a report about a busy day, without Spark."""

from __future__ import annotations

import math
import random
from dataclasses import fields
from datetime import UTC, datetime, timedelta

from beanstalkd_py.pipeline.report.data import (
    BinlogFile,
    Certainty,
    DeadGroup,
    Disk,
    Input,
    Percentiles,
    ReportData,
    Shard,
    Tube,
    Violation,
    Violations,
    Windows,
)

BEGIN = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
MIB = 1024 * 1024
NAMES = ("mail", "thumbnails", "invoices", "search-index", "webhooks", "reports", "sms", "exports")
COUNTED = [field.name for field in fields(Windows) if field.name not in ("begin", "window_s")]


def windows(seed: int, scale: float, count: int = 96, window_s: float = 300.0) -> Windows:
    """A daily load with an incident in which workers stop."""
    chance = random.Random(seed)
    columns: dict[str, list] = {name: [] for name in COUNTED}
    waiting = buried = delayed = 0
    for n in range(count):
        day = 0.6 + 0.4 * math.sin(2 * math.pi * (n / count - 0.2))
        down = 0.55 < n / count < 0.63
        puts = max(0, round(scale * window_s * day * chance.uniform(0.85, 1.15)))
        done = min(waiting + puts, round(puts * chance.uniform(0.9, 1.1) + 0.35 * waiting))
        done = round(done * 0.1) if down else done
        timeouts = round(done * (0.2 if down else 0.004) * chance.random())
        buries = round(done * (0.06 if down else 0.002) * chance.random())
        kicks = min(buried, buries + 30) if n % 24 == 20 else 0
        done -= min(done, buries)
        buried += buries - kicks
        waiting = max(0, waiting + puts + kicks - done - buries)
        delayed = round(puts * 0.08)
        typical = 0.004 + waiting / max(puts, 1) * window_s * 0.5
        reserved = min(waiting, round(scale * 4))
        wait = typical * chance.uniform(0.8, 1.2)
        known = done > 0
        row = {
            "puts": puts,
            "deletes": done,
            "truncates": 0,
            "expires": 0,
            "dead_letters": 0,
            "discards": 0,
            "moves": 0,
            "reserves": done + timeouts + buries,
            "releases": round(done * 0.01),
            "timeouts": timeouts,
            "buries": buries,
            "kicks": kicks,
            "put_bytes": puts * chance.randint(180, 260),
            "wait_p50_s": wait if known else None,
            "wait_p90_s": wait * 6 if known else None,
            "wait_p99_s": wait * 40 if known else None,
            "finish_p50_s": wait + 0.4 if known else None,
            "finish_p90_s": wait * 6 + 2 if known else None,
            "finish_p99_s": wait * 40 + 9 if known else None,
            "wait_unknown": 0,
            "finish_unknown": 0,
            "ready_or_reserved": 0,
            "unknown": 0,
            "ready": waiting - reserved,
            "reserved": reserved,
            "delayed": delayed,
            "buried": buried,
        }
        for name, value in row.items():
            columns[name].append(value)
    return Windows(BEGIN, window_s, **{name: tuple(column) for name, column in columns.items()})


def together(parts: list[Windows]) -> Windows:
    first = parts[0]
    columns = {}
    for name in COUNTED:
        each = [getattr(part, name) for part in parts]
        columns[name] = each[0] if name.endswith("_s") else tuple(map(sum, zip(*each, strict=True)))
    return Windows(first.begin, first.window_s, **columns)


def tubes(count: int, seed: int, windows_each: int = 96) -> tuple[Tube, ...]:
    found = []
    for n in range(count):
        name = NAMES[n] if n < len(NAMES) else f"tenant-{n:04d}/events"
        each = windows(seed + n, 40 / (n + 1) ** 1.4, windows_each)
        wait = Percentiles(0.006, 0.04, 0.9 * (n + 1), 12.0)
        finish = Percentiles(0.31, 2.2, 14.0 * (n + 1), 340.0)
        found.append(Tube("queue-1", name, each, wait, finish))
    return tuple(found)


def dead(seed: int) -> tuple[DeadGroup, ...]:
    chance = random.Random(seed)
    bodies = (
        ("mail", '{"attempts", "job": "SendInvoice", "to"}', '{"job":"SendInvoice","to":"a@b"}'),
        ("webhooks", "POST https://hooks.example/N/H", "POST https://hooks.example/81/5f3a9c"),
        ("thumbnails", "binary, 512 bytes", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
        ("exports", 'O:N:"App\\Jobs\\Export":N:{s:N:"user"', 'O:15:"App\\Jobs\\Export":2:{s:4:"us'),
    )
    return tuple(
        DeadGroup(
            "queue-1",
            tube,
            signature,
            jobs := chance.randint(1, 900),
            jobs - jobs // 5,
            jobs // 4,
            chance.uniform(60, 400_000),
            BEGIN + timedelta(hours=7, seconds=chance.randint(0, 3000)),
            chance.randint(1, 10**6),
            sample,
        )
        for tube, signature, sample in bodies
    )


def disk(seed: int) -> Disk:
    chance = random.Random(seed)
    files = []
    for n in range(24):
        live = round(10 * MIB * min(1.0, (n / 24) ** 4 + chance.random() * 0.06))
        put_at = BEGIN + timedelta(minutes=20 * n)
        jobs = live // 2400
        oldest = (1000 + n, NAMES[n % 5], put_at) if jobs else (None, None, None)
        files.append(BinlogFile("queue-1", "", f"binlog.{n + 812}", 10 * MIB, live, jobs, *oldest))
    size, live = 240 * MIB, sum(file.live_bytes for file in files)
    shard = Shard("queue-1", "", 24, size, live, 1.34)
    return Disk((shard,), tuple(files))


def violations() -> Violations:
    first = tuple(
        Violation("queue-1", "", f"binlog.{n}", 48_211 * n, 77 + n, what)
        for n, what in enumerate(("counters go back", "short entry without its full one") * 3)
    )
    kinds = (("short entry without its full one", 311), ("counters go back", 3))
    return Violations(kinds, first)


def busy_day(seed: int = 1, shown: int = 25, more: int = 0, windows_each: int = 96) -> ReportData:
    """A night and a morning with everything that a report can show."""
    each = tubes(shown, seed, windows_each)
    return ReportData(
        inputs=(Input("/var/lib/beanstalkd", "binlog"), Input("/srv/history", "history")),
        made_at=datetime(2026, 11, 22, 3, 14, 15, tzinfo=UTC),
        windows=together([tube.windows for tube in each]),
        servers=("beanstalkd_py",),
        hosts=1,
        jobs=4_000_000,
        incomplete=212,
        certainty=Certainty(9_310_004, 41_200, 2_020),
        wait=Percentiles(0.0064, 0.041, 31.0, 1900.0),
        finish=Percentiles(0.31, 2.3, 260.0, 5400.0),
        tubes=each,
        more_tubes=more,
        more_puts=more * 3,
        dead=dead(seed),
        more_dead_groups=3,
        more_dead_jobs=17,
        disk=disk(seed),
        violations=violations(),
    )
