"""Which of the columns of a table are wanted, by the options of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Column, Kind, Table
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.sources.read_modes import Mode


def choose(
    columns: Sequence[Column],
    options: Options,
    named: Sequence[str] | None,
    added: Sequence[str] = (),
) -> Table:
    """The columns that are named, in that order, or the usual ones and those that are added.

    The corrupt column is a usual one in the mode that says something there. PipelineUsageError.
    """
    others = {column.name.lower() for column in columns if column.kind is not Kind.FAULT}
    if options.corrupt.lower() in others:  # Spark does not tell cases apart
        raise PipelineUsageError(
            f"columnNameOfCorruptRecord: {options.corrupt!r} is a column already; give another name"
        )
    says = options.mode is Mode.PERMISSIVE
    there = [
        replace(column, name=options.corrupt, usual=says) if column.kind is Kind.FAULT else column
        for column in columns
    ]
    by_name = {column.name: column for column in there}
    if named is None:
        chosen = [column for column in there if column.usual or column.name in added]
    else:
        for name in named:
            if name not in by_name:
                raise PipelineUsageError(f"no column {name!r}; there are {', '.join(by_name)}")
        chosen = [by_name[name] for name in dict.fromkeys(named)]
    if not chosen:
        raise PipelineUsageError("columns names no column")
    return Table(tuple(there), tuple(chosen))
