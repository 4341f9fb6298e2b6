"""Rewrite a folder of jobs, for test_rewriting_power_cut.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from binlog.generations import FILE, Countdown, bring_to, fill, killed_at, settled
from crash.steps_of_work import record_ranges

from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import locked_folder
from beanstalkd_py.binlog.layout import WHOLE, Layout, shard_name
from beanstalkd_py.binlog.steps import Steps

FIRST = Layout(3)
DAMAGED = "binlog.1.bad"
"""A damaged file that repair has kept."""
LAYOUTS = [Layout(2, b"-"), Layout(4), WHOLE, Layout(2), WHOLE, FIRST]


def reshard(folder: Path) -> Iterator[None]:
    fill_shards(folder)
    yield
    for layout in LAYOUTS:
        bring_to(folder, layout)
    yield


def killed_reshard(folder: Path) -> Iterator[None]:
    """Kill it at each step of the second half; a range is what the next start does."""
    fill_shards(folder)
    for layout, back in ((WHOLE, FIRST), (FIRST, WHOLE)):
        countdown = Countdown(-1)
        bring_to(folder, layout, Steps(countdown))
        bring_to(folder, back)
        count = len(countdown.steps)
        for nth in range(count // 2, count + 1):
            if killed_at(folder, layout, nth):  # the numbers of files differ a little
                yield
                settled(folder)
                yield
            bring_to(folder, back)
        bring_to(folder, layout)


def fill_shards(folder: Path) -> None:
    fill(folder, steps=20)
    bring_to(folder, FIRST)
    (folder / shard_name(2) / DAMAGED).touch()
    Steps().sync_folder(folder / shard_name(2))


def compact_once(folder: Path) -> Iterator[None]:
    fill(folder)
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    Steps().sync_folder(folder)
    yield
    with locked_folder(folder, writing=True) as found:
        compact(found, FILE)
    yield


if __name__ == "__main__":
    record_ranges({"reshard": reshard, "killed reshard": killed_reshard, "compact": compact_once})
