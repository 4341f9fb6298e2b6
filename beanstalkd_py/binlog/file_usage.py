"""The share of each file that live jobs still need, for `binlog stats`.

The server removes the oldest file when no live job has its full entry there; such jobs pin it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, field

from beanstalkd_py.binlog.file_walk import Damage, damage_of_folder
from beanstalkd_py.binlog.folders import Folder
from beanstalkd_py.binlog.rewrite import ReadShard, read_shards


@dataclass(frozen=True, slots=True)
class FileUsage:
    """One file; sizes are bytes. `live_bytes`: full and last short entries of live jobs."""

    file: str
    version: int | None
    bytes: int
    live_bytes: int
    full_entries: int
    short_entries: int
    jobs: int


@dataclass
class FolderUsage:
    """All files, and their damage."""

    files: list[FileUsage] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    def total(self) -> FileUsage:
        counts = [astuple(file)[2:] for file in self.files]
        return FileUsage("total", None, *map(sum, zip((0,) * 5, *counts, strict=True)))

    def to_json(self) -> dict[str, object]:
        total = asdict(self.total())
        del total["file"], total["version"]
        return {
            "files": [asdict(file) for file in self.files],
            "total": {"files": len(self.files), **total},
            "damage": [damage.to_json() for damage in self.damage],
        }


def folder_usage(folder: Folder) -> FolderUsage:
    """Read a whole folder. Raises OSError."""
    usage = FolderUsage(damage=damage_of_folder(folder))
    with read_shards(folder) as shards:
        for read in shards:
            usage.damage += [damage for damage in read.damage if not damage.tail]
            usage.files += _usage_of_files(read)
    return usage


def _usage_of_files(read: ReadShard) -> Iterator[FileUsage]:
    usages = {usage.number: usage for usage in read.walk.reader.usage()}
    for file in read.files:
        live, facts = usages.get(file.number), file.facts
        yield FileUsage(
            file=file.file,
            version=facts.version if facts else None,
            bytes=file.size,
            live_bytes=live.live_bytes if live else 0,
            full_entries=facts.full_entries if facts else 0,
            short_entries=facts.short_entries if facts else 0,
            jobs=live.jobs if live else 0,
        )
