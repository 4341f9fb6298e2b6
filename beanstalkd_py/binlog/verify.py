"""Whether all entries of a folder can be read: what a server's start would complain of.

Where lines go is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from beanstalkd_py.binlog.file_walk import Damage, FileRead, Walk, damage_of_folder
from beanstalkd_py.binlog.folders import Folder


@dataclass
class Verdict:
    """What was read. `size` is bytes; `notes` are tails that a running server is writing."""

    files: int = 0
    size: int = 0
    entries: int = 0
    jobs: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage

    def to_json(self) -> dict[str, object]:
        """As `--json` shows it."""
        return {
            "clean": self.clean,
            "files": self.files,
            "bytes": self.size,
            "entries": self.entries,
            "jobs": self.jobs,
            "damage": [damage.to_json() for damage in self.damage],
            "tails": [note.to_json() for note in self.notes],
        }

    def add(self, found: Damage | FileRead) -> None:
        """Takes note of what a Walk has found."""
        if isinstance(found, Damage):
            (self.notes if found.tail else self.damage).append(found)
            return
        self.files += 1
        self.size += found.size
        if found.facts is not None:
            self.entries += found.facts.full_entries + found.facts.short_entries


def verify(folder: Folder, tell: Callable[[Damage], None]) -> Verdict:
    """Reads all of it; `tell` hears of each damage and each tail at once. Raises OSError."""
    verdict = Verdict()
    for damage in damage_of_folder(folder):
        verdict.add(damage)
        tell(damage)
    for shard in folder.shards:
        walk = Walk(shard)
        try:
            for found in walk:
                verdict.add(found)
                if isinstance(found, Damage):
                    tell(found)
            verdict.jobs += walk.reader.jobs
        finally:
            walk.close()
    return verdict
