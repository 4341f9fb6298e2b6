"""What of each file is still needed, and by how many jobs: the figures of `stats`.

A file goes when no live job has its full entry there and no older file is left; those jobs pin it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from beanstalkd_py.binlog.file_walk import Damage, FileRead, Walk, damage_of_folder
from beanstalkd_py.binlog.folders import Folder


@dataclass(frozen=True, slots=True)
class FileUsage:
    """One file; sizes are bytes. `live_bytes`: full and last short entries of live jobs."""

    file: str
    version: int | None
    size: int
    live_bytes: int
    full_entries: int
    short_entries: int
    jobs: int

    def to_json(self) -> dict[str, object]:
        """As `--json` shows it."""
        return {
            "file": self.file,
            "version": self.version,
            "bytes": self.size,
            "live_bytes": self.live_bytes,
            "full_entries": self.full_entries,
            "short_entries": self.short_entries,
            "jobs": self.jobs,
        }


@dataclass
class FolderUsage:
    """All files, and the places that could not be read."""

    files: list[FileUsage] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    def total(self) -> FileUsage:
        """The sums."""
        return FileUsage(
            file="total",
            version=None,
            size=sum(file.size for file in self.files),
            live_bytes=sum(file.live_bytes for file in self.files),
            full_entries=sum(file.full_entries for file in self.files),
            short_entries=sum(file.short_entries for file in self.files),
            jobs=sum(file.jobs for file in self.files),
        )

    def to_json(self) -> dict[str, object]:
        """As `--json` shows it."""
        total = self.total().to_json()
        del total["file"], total["version"]
        return {
            "files": [file.to_json() for file in self.files],
            "total": {"files": len(self.files), **total},
            "damage": [damage.to_json() for damage in self.damage],
        }


def folder_usage(folder: Folder) -> FolderUsage:
    """Read a whole folder. Raises OSError."""
    found = FolderUsage(damage=damage_of_folder(folder))
    for shard in folder.shards:
        walk = Walk(shard)
        try:
            files = []
            for step in walk:
                if isinstance(step, FileRead):
                    files.append(step)
                elif not step.tail:
                    found.damage.append(step)
            usages = {usage.number: usage for usage in walk.reader.usage()}
        finally:
            walk.close()
        for file in files:
            live = usages.get(file.number)
            facts = file.facts
            found.files.append(
                FileUsage(
                    file=file.file,
                    version=facts.version if facts else None,
                    size=file.size,
                    live_bytes=live.live_bytes if live else 0,
                    full_entries=facts.full_entries if facts else 0,
                    short_entries=facts.short_entries if facts else 0,
                    jobs=live.jobs if live else 0,
                )
            )
    return found
