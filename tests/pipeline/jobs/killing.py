"""Runs of an export that end before a step of theirs, as if the process had been killed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from beanstalkd_py.pipeline.jobs.export.files import Files
from beanstalkd_py.pipeline.jobs.export.job import _DataSetExport

STEPS = ("write", "rename", "delete", "make_folders")
"""All that changes files."""


class Killed(Exception):
    """Nothing that an export knows, so everything stays as it is."""


@contextmanager
def killed_at(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Ends a run before a step: that of a name and of this number among those, or of all steps.

    Of a write a half is done. `count` is when a batch is in its place and nobody has heard of it.
    Yields the steps that have been taken.
    """
    taken: list[str] = []

    def counted(of: type, step: str) -> Any:
        usual = getattr(of, step)

        def do(self: Any, *given: Any) -> Any:
            if name in ("", step):
                if len(taken) == number:
                    if step == "write":
                        usual(self, given[0], given[1][: len(given[1]) // 2])
                    raise Killed(step)
                taken.append(step)
            return usual(self, *given)

        return do

    with monkeypatch.context() as patch:
        for step in STEPS:
            patch.setattr(Files, step, counted(Files, step))
        if name == "count":
            patch.setattr(_DataSetExport, "_count", counted(_DataSetExport, "_count"))
            name = "_count"
        yield taken
