"""Exports that end before one of their steps, as if the process had been killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from beanstalkd_py.pipeline.jobs.export.table import ExportTable

STEPS = (
    (DeltaTable, "create"),
    (ExportTable, "_write"),
    (DeltaStorageHandler, "open_output_stream"),
    (DeltaTable, "create_write_transaction"),
    (DeltaTable, "update_incremental"),
    (DeltaStorageHandler, "delete_file"),
    (DeltaTable, "vacuum"),
)
"""All steps of the driver that change files, and those around the tasks that write rows."""


class Killed(Exception):
    """An exception that an export does not handle."""


@contextmanager
def killed_before(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """End a run before the step of a number; a killed write is half complete.

    Yields the executed steps.
    """
    taken: list[str] = []

    def counted(of: type, step: str) -> Any:
        usual = getattr(of, step)

        def do(*given: Any, **named: Any) -> Any:
            if len(taken) == number:
                if step == "open_output_stream":
                    with pa.BufferedOutputStream(usual(*given, **named), 100) as stream:
                        stream.write(b'{"posit')
                raise Killed(step)
            taken.append(step)
            return usual(*given, **named)

        return do

    with monkeypatch.context() as patch:
        for of, step in STEPS:
            patch.setattr(of, step, counted(of, step))
        yield taken
