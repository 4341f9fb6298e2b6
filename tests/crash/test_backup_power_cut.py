"""Cut the power at every step of changes of backups: each that is listed is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.steps_of_work import images_at_every_step

from beanstalkd_py.backup.restore import verify
from beanstalkd_py.backup.target import Target

pytestmark = pytest.mark.costly


@pytest.mark.parametrize(("work", "last"), [("create", "one"), ("remove", "two")])
def test_power_cut(home: Path, work: str, last: str) -> None:
    found: list[list[str]] = []
    for folder in images_at_every_step(home, "crash/backup_process.py", work):
        target = Target(str(folder))
        found.append(target.names())
        for name in found[-1]:
            assert list(verify(target.load(name), target)) == []
    assert len(found) > 5
    assert found[-1] == [last] and found[0] != found[-1]
    if work == "remove":
        assert all(last in names for names in found)
