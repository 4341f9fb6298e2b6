"""Options of a store. `store.json` has the file sizes, because the files do not show all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.regular_file import read_regular

STORE_FILE = "store.json"
FORMAT = 1
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a store's files. The defaults are RocketMQ's."""

    segment_bytes: int = GIB
    queue_file_units: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    property_crc: bool = False

    def __post_init__(self) -> None:
        """Raises StoreUsageError for impossible sizes."""
        for name, least, most in (
            ("segment_bytes", 128, 2**31 - 1),
            ("queue_file_units", 1, (2**31 - 1) // 20),
            ("index_slots", 1, 2**31 - 1),
            ("index_entries", 2, 2**31 - 1),
        ):
            if not least <= getattr(self, name) <= most:
                raise StoreUsageError(f"{name} must be {least} to {most}")


ARCHIVER_SIZES = Sizes(
    segment_bytes=64 * MIB, queue_file_units=10_000, index_slots=500_000, index_entries=2_000_000
)
"""Sizes for one server's history; an empty store takes 110 MB."""


@dataclass(frozen=True, slots=True)
class Retention:
    """When the oldest files are removed. Ratios are fractions of the disk, 0.0 to 1.0.

    `most_bytes` limits the total size of log files, 0 for no limit; beyond it files are removed
    before they expire.
    """

    reserved_seconds: float = 72 * 3600
    at_hours: tuple[int, ...] = (4,)  # local time
    disk_used: float = 0.75  # remove expired files at any hour
    disk_crowded: float = 0.85  # remove files before they expire
    disk_full: float = 0.90  # refuse appends
    most_bytes: int = 0
    files_at_once: int = 10
    interval_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an open store. The defaults are RocketMQ's.

    `sizes` None means those of the store, or RocketMQ's for a new one. With `background` False the
    caller calls `flush`, `dispatch` and `expire`. `flush` is "async" or "sync" (an append returns
    when it is on disk). `create` creates a missing store.
    """

    sizes: Sizes | None = None
    create: bool = True
    flush: str = "async"
    flush_interval_seconds: float = 0.5
    flush_timeout_seconds: float = 5.0
    queue_flush_seconds: float = 1.0
    max_body_bytes: int = 4 * MIB
    store_host: tuple[str, int] = ("127.0.0.1", 10911)
    retention: Retention | None = field(default_factory=Retention)
    background: bool = True

    def __post_init__(self) -> None:
        """Raises StoreUsageError for unknown values."""
        if self.flush not in ("async", "sync"):
            raise StoreUsageError(f"flush must be async or sync, not {self.flush!r}")


def load_sizes(folder: Path) -> Sizes | None:
    """Read `store.json`; None if it does not exist. Raises StoreUsageError if it is invalid."""
    path = folder / STORE_FILE
    try:
        text = read_regular(path)
    except FileNotFoundError:
        return None
    try:
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise StoreUsageError(f"{path}: format {values['format']!r} is not supported")
        return Sizes(**{each.name: values[each.name] for each in fields(Sizes)})
    except (ValueError, KeyError, TypeError) as error:
        raise StoreUsageError(f"{path} is not a store description: {error!r}") from error


def sizes_as_text(sizes: Sizes) -> str:
    """Return the contents of `store.json`."""
    return json.dumps({"format": FORMAT, **asdict(sizes)}, indent=2) + "\n"
