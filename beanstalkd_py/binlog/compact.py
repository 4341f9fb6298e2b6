"""Offline compaction: rewrite the jobs of a folder into as few files as possible.

New files get numbers above all others, because a later full entry replaces what is known of its
job. They are written and synced under names that a server ignores, then renamed, oldest first; then
the old files are removed, oldest first. After a crash at any point the folder has the same jobs,
for C beanstalkd too; the next start or compaction removes leftovers.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.file_walk import HEADER_BYTES, damage_of_folder
from beanstalkd_py.binlog.folders import Folder, Shard
from beanstalkd_py.binlog.layout import check_highest_number, highest_kept
from beanstalkd_py.binlog.rewrite import ReadShard, read_shards, reason_of, write_jobs
from beanstalkd_py.binlog.steps import Steps

LENGTH_BYTES = 84
"""Of a length entry."""
UNFINISHED = ".new"
"""Suffix of a file being written; a server removes such files when it starts."""

_UNFINISHED = re.compile(rf"binlog\.[1-9]\d*{re.escape(UNFINISHED)}")


@dataclass
class Compacted:
    """The result, for all files."""

    jobs: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    @property
    def freed(self) -> int:
        """Freed bytes; negative if added checksums outweigh the savings."""
        return self.bytes_before - self.bytes_after

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "bytes_freed": self.freed}


def compact(folder: Folder, file_size: int, steps: Steps | None = None) -> Compacted:
    """Rewrite every shard that gets smaller; `file_size` is bytes.

    The caller holds the folder's lock for writing. Raises BinlogToolError if the folder is damaged
    or the compaction failed; the jobs are unchanged then.
    """
    steps = steps or Steps()
    done = Compacted()
    try:
        with read_shards(folder) as shards:
            _check(folder, shards)
            for read in shards:
                _compact(read, file_size, done, steps)
    except OSError as error:
        raise errors.BinlogToolError(
            f"cannot compact binlog folder {folder.top}: {reason_of(error)}; its jobs are unchanged"
        ) from error
    return done


def _check(folder: Folder, shards: list[ReadShard]) -> None:
    """Refuse a damaged folder, because compaction would remove jobs that repair may rescue."""
    damage = damage_of_folder(folder)
    damage += [each for read in shards for each in read.damage if not each.torn]
    if damage:
        raise errors.BinlogToolError(
            f"binlog folder {folder.top} is damaged (places: {len(damage)}), first at"
            f" {damage[0]}; run 'beanstalkd-py binlog repair' first"
        )


def _compact(read: ReadShard, file_size: int, done: Compacted, steps: Steps) -> None:
    shard = read.walk.shard
    old = shard.numbers()
    size = shard.size()
    done.jobs += read.walk.reader.jobs
    done.files_before += len(old)
    done.bytes_before += size
    if _is_compact(read, file_size):
        done.files_after += len(old)
        done.bytes_after += size
        return
    _remove_unfinished(shard.path, steps)
    first = max([highest_kept(shard.path), *old]) + 1
    try:
        files = write_jobs(read, shard.path, first, UNFINISHED, file_size, steps).files
        check_highest_number(shard.path, first + files - 1)
        steps.sync_folder(shard.path)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_unfinished(shard.path, steps)
        raise
    _replace_files(shard, [first + index for index in range(files)], old, steps)
    done.files_after += files
    done.bytes_after += shard.size()


def _replace_files(shard: Shard, new: list[int], old: list[int], steps: Steps) -> None:
    """Rename the new files and remove the old ones; every step leaves the same jobs."""
    for number in new:
        path = shard.path / f"binlog.{number}"
        steps.rename(path.with_name(path.name + UNFINISHED), path)
        steps.sync_folder(shard.path)  # a gap between the numbers would count as damage
    for number in old:
        steps.remove(shard.path / f"binlog.{number}")
        # A later file may hold the delete of a job in this one, so it must not be removed first.
        steps.sync_folder(shard.path)


def _is_compact(read: ReadShard, file_size: int) -> bool:
    """Return whether each job has only its full entry and no two adjacent files fit into one."""
    facts = [file.facts for file in read.files if file.facts]
    full = sum(each.full_entries for each in facts)
    lengths = sum(each.lengths for each in facts)
    short = sum(each.short_entries - each.attributes for each in facts) - lengths
    slack = any(file.size != (file.facts.end if file.facts else 0) for file in read.files)
    if read.damage or slack or full != read.walk.reader.jobs or short > 1 or lengths > len(facts):
        return False
    sizes = [each.end - HEADER_BYTES - each.lengths * LENGTH_BYTES for each in facts]
    if sizes and not sizes[-1]:  # it has only length entries
        sizes.pop()
    return all(one.end + size > file_size for one, size in zip(facts, sizes[1:], strict=False))


def _remove_unfinished(folder: Path, steps: Steps) -> None:
    for path in sorted(folder.iterdir()):
        if _UNFINISHED.fullmatch(path.name):
            steps.remove(path)
