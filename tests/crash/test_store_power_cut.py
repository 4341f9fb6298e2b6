"""Cut the power at every step of changes of a history store: it opens, and has what was saved.

The recording lacks the index, which is mapped; tests/history/test_recovery.py has its cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.steps_of_work import FOLDER, images_at_every_step
from crash.store_process import MORE, OPTIONS, SAVED
from history.stores import opened

from beanstalkd_py.history.store import StoreReader

pytestmark = pytest.mark.costly


@pytest.mark.parametrize("work", ["expire", "begin files", "recover"])
def test_power_cut(home: Path, work: str) -> None:
    checked = 0
    for folder in images_at_every_step(home, "crash/store_process.py", work, dice=5):
        with opened(folder, OPTIONS) as store:
            numbers = [int(one.properties["KEYS"][1:]) for one in store.scan()]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
        if work == "expire":
            with StoreReader.open(home / "disk" / FOLDER) as left:
                first = int(next(iter(left.scan())).properties["KEYS"][1:])
            assert numbers[0] <= first and numbers[-1] == SAVED + MORE - 1
        else:
            assert numbers[0] == 0 and numbers[-1] >= SAVED - 1
        checked += 1
    assert checked > 10
