"""Fill the folder argv[2], and rewrite it by the work named argv[1].

The file argv[4] gets the length that the recording argv[3] had when all jobs were in synced files.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from binlog.generations import FILE, bring_to, fill

from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.folders import locked_folder
from beanstalkd_py.binlog.layout import WHOLE, Layout, shard_name
from beanstalkd_py.binlog.steps import Steps

FIRST = Layout(3)
DAMAGED = "binlog.1.bad"
"""A damaged file that repair has kept."""
LAYOUTS = [Layout(2, b"-"), Layout(4), WHOLE, Layout(2), WHOLE, FIRST]


def main() -> None:
    work, folder = sys.argv[1], Path(sys.argv[2])
    fill(folder, steps=20 if work == "reshard" else 150)
    if work == "reshard":
        bring_to(folder, FIRST)
        (folder / shard_name(2) / DAMAGED).touch()
        Steps().sync_folder(folder / shard_name(2))
    else:
        sync_files(folder)
    Path(sys.argv[4]).write_text(str(Path(sys.argv[3]).stat().st_size))
    if work == "reshard":
        for layout in LAYOUTS:
            bring_to(folder, layout)
    else:
        with locked_folder(folder, writing=True) as found:
            compact(found, FILE)


def sync_files(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    Steps().sync_folder(folder)


if __name__ == "__main__":
    main()
