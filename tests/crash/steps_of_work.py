"""Disk images at every step of some work of a script.

The script records its ranges by `record_ranges`, and `images_at_every_step` makes their images.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from crash.disk_images import Disk, Image, records
from crash.recorder import build_recorder, recorded_script

FOLDER = "folder"
Work = Callable[[Path], Iterator[None]]
"""Changes a folder. It yields at the begin and at the end of each range to be checked."""


def record_ranges(works: Mapping[str, Work]) -> None:
    """Do the work argv[1] in the folder argv[2]; store its ranges of the recording argv[3].

    The file argv[4] gets a line for each begin and end: the length of the recording then.
    """
    recording = Path(sys.argv[3])
    with Path(sys.argv[4]).open("w") as out:
        for _ in works[sys.argv[1]](Path(sys.argv[2])):
            print(recording.stat().st_size, file=out)


def images_at_every_step(home: Path, script: str, work: str, dice: int = 0) -> Iterator[Path]:
    """Yield the folder of each different image in the ranges of this work.

    At each record these are the durable changes, those with one unsynced change of a name only, all
    but one, and random ones: `dice` is their number.
    """
    folder, ranges = home / "disk" / FOLDER, home / "ranges"
    folder.mkdir(parents=True)
    words = (work, folder, home / "recording", ranges)
    recording = recorded_script(build_recorder(home), home, script, *map(str, words))
    ends = [int(line) for line in ranges.read_text().split()]
    for image in _images(home / "disk", recording, ends, dice):
        image.write(home / "image")
        yield home / "image" / FOLDER
        shutil.rmtree(home / "image")


def _images(root: Path, recording: bytes, ends: list[int], dice: int) -> Iterator[Image]:
    """`ends` are the begin and end of each range in turn."""
    disk = Disk(root, [FOLDER])
    seen = set[bytes]()
    played = 0
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        disk.play(recording[played:begin])
        for number, record in enumerate(records(recording[begin:end])):
            disk.take(record)
            some = (disk.image(random.Random(f"{number} {one}")) for one in range(dice))
            for image in (disk.image(None), *disk.images_one_name_apart(), *some):
                if image.key not in seen:
                    seen.add(image.key)
                    yield image
        played = end
