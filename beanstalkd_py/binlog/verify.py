"""Verify that all entries of a folder can be read, with the messages of the server's recovery."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from beanstalkd_py.binlog.file_walk import Damage, FileRead, Walk, damage_of_folder
from beanstalkd_py.binlog.folders import Folder


@dataclass
class Verdict:
    """The result. `tails` are entries that a running server is writing."""

    files: int = 0
    bytes: int = 0
    entries: int = 0
    jobs: int = 0
    damage: list[Damage] = field(default_factory=list)
    tails: list[Damage] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.damage

    def to_json(self) -> dict[str, object]:
        return {
            "clean": self.clean,
            **asdict(self),
            "damage": [damage.to_json() for damage in self.damage],
            "tails": [tail.to_json() for tail in self.tails],
        }

    def add(self, result: Damage | FileRead) -> None:
        if isinstance(result, Damage):
            (self.tails if result.tail else self.damage).append(result)
            return
        self.files += 1
        self.bytes += result.size
        if result.facts is not None:
            self.entries += result.facts.full_entries + result.facts.short_entries


def verify(folder: Folder, report: Callable[[Damage], None]) -> Verdict:
    """Read a whole folder; `report` gets each damage and tail at once. Raises OSError."""
    verdict = Verdict()
    for damage in damage_of_folder(folder):
        verdict.add(damage)
        report(damage)
    for shard in folder.shards:
        with contextlib.closing(Walk(shard)) as walk:
            for result in walk:
                verdict.add(result)
                if isinstance(result, Damage):
                    report(result)
            verdict.jobs += walk.reader.jobs
    return verdict
