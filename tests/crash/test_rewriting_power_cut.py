"""Cut the power at every step of resharding and offline compaction: each job is there once.

test_power_cut.py takes random subsets of the unsynced changes. Here each unsynced change of a name
is the only one that is on disk, and the only one that is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog.damaged_folders import start
from binlog.generations import check_settled, contents, settled
from crash.rewriting_process import DAMAGED
from crash.steps_of_work import images_at_every_step

from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.verify import verify

SCRIPT = "crash/rewriting_process.py"
pytestmark = pytest.mark.costly


def test_reshard(home: Path) -> None:
    assert check_reshards(home, "reshard") > 300


@pytest.mark.slow
def test_killed_reshard(home: Path) -> None:
    assert check_reshards(home, "killed reshard") > 300


def check_reshards(home: Path, work: str) -> int:
    """Return the number of checked images. The first one has the jobs before any change."""
    images = images_at_every_step(home, SCRIPT, work)
    before = settled(next(images))
    assert len(before) > 20
    checked = 0
    for folder in images:
        check_settled(folder, before, Layout(2))
        assert any(folder.rglob(f"*{DAMAGED}"))
        checked += 1
    return checked


def test_compact(home: Path) -> None:
    images = images_at_every_step(home, SCRIPT, "compact")
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
