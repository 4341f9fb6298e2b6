"""Cut the power at every step of resharding and offline compaction: each job is there once.

test_power_cut.py takes random subsets of the unsynced changes. Here each unsynced change of a name
is the only one that is on disk, and the only one that is not.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.damaged_folders import start
from binlog.generations import check_settled, contents, settled
from crash.disk_images import Disk, Image, records
from crash.recorder import build_recorder, recorded_script
from crash.rewriting_process import DAMAGED

from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.verify import verify

MEMORY = Path("/dev/shm")
BINLOG = "binlog"
pytestmark = pytest.mark.costly


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rewriting-power-cut-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


def test_reshard(home: Path) -> None:
    assert check_reshards(home, "reshard") > 300


@pytest.mark.slow
def test_killed_reshard(home: Path) -> None:
    assert check_reshards(home, "killed reshard") > 300


def check_reshards(home: Path, work: str) -> int:
    """Return the number of checked images. The first one has the jobs before any change."""
    images = images_at_every_step(home, work)
    before = settled(next(images))
    assert len(before) > 20
    checked = 0
    for folder in images:
        check_settled(folder, before, Layout(2))
        assert any(folder.rglob(f"*{DAMAGED}"))
        checked += 1
    return checked


def test_compact(home: Path) -> None:
    images = images_at_every_step(home, "compact")
    scratch = home / "scratch"
    first = next(images)
    before, stored = start(first, scratch), contents([first])
    assert len(before.jobs) > 20
    checked = 0
    for folder in images:
        assert verify(inspect_folder(folder), print).clean
        after = start(folder, scratch)
        assert (after.jobs, after.buried, after.last_id) == (
            *(before.jobs, before.buried, before.last_id),
        )
        assert contents([folder]).keys() == stored.keys()
        checked += 1
    assert checked > 20


def images_at_every_step(home: Path, work: str) -> Iterator[Path]:
    """Yield the folder of each different image in the ranges of this work."""
    folder, ranges = home / "disk" / BINLOG, home / "ranges"
    folder.mkdir(parents=True)
    words = (work, folder, home / "recording", ranges)
    recording = recorded_script(
        build_recorder(home), home, "crash/rewriting_process.py", *map(str, words)
    )
    ends = [int(line) for line in ranges.read_text().split()]
    for image in _images(home / "disk", recording, ends):
        image.write(home / "image")
        yield home / "image" / BINLOG
        shutil.rmtree(home / "image")


def _images(root: Path, recording: bytes, ends: list[int]) -> Iterator[Image]:
    """`ends` are the begin and end of each range in turn."""
    disk = Disk(root, [BINLOG])
    seen = set[bytes]()
    played = 0
    for begin, end in zip(ends[::2], ends[1::2], strict=True):
        disk.play(recording[played:begin])
        for record in records(recording[begin:end]):
            disk.take(record)
            for image in (disk.image(None), *disk.images_one_name_apart()):
                if image.key not in seen:
                    seen.add(image.key)
                    yield image
        played = end
