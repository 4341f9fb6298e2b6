"""Exports that end before one of their steps, as if the process had been killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from beanstalkd_py.pipeline.jobs.export.files import Files
from beanstalkd_py.pipeline.jobs.export.job import _DataSetExport

STEPS = ("write", "rename", "delete", "make_folders")
"""All steps that change files."""


class Killed(Exception):
    """An exception that an export does not handle."""


@contextmanager
def killed_at(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """End a run before the step of a name and number, or of a number among all steps.

    A killed write is half complete. The step `count` is after a change and before its result.
    Yields the executed steps.
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
