"""Filters on tubes and times, applied where files are read, before rows go to Spark.

A row about a fault is kept, because its tube and time are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Table
from beanstalkd_py.pipeline.sources.options import Options


@dataclass(frozen=True, slots=True)
class Selection:
    """Tubes and a time span in microseconds, `until` excluded.

    `time` is the name of the time column. Rows without a tube match every tube.
    """

    time: str
    tubes: frozenset[str] | None = None
    tube_pattern: str | None = None
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, time: str, options: Options) -> Selection:
        """Parse the options about tubes, and those about times in milliseconds."""
        tubes, pattern = options.names("subscribe"), options.text("subscribePattern")
        if tubes is not None and pattern is not None:
            raise PipelineUsageError("give subscribe or subscribePattern, not both")
        if tubes is not None and not tubes:
            raise PipelineUsageError("subscribe names no tube")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise PipelineUsageError(f"subscribePattern {pattern!r}: {error}") from error
        begin = _microseconds(options, "startingTimestamp")
        end = _microseconds(options, "endingTimestamp")
        if begin is not None and end is not None and begin >= end:
            raise PipelineUsageError("startingTimestamp is not before endingTimestamp")
        return cls(time, None if tubes is None else frozenset(tubes), pattern, begin, end)

    def columns(self) -> set[str]:
        names = set()
        if self.tubes is not None or self.tube_pattern is not None:
            names.add("tube")
        if self.since is not None or self.until is not None:
            names.add(self.time)
        return names

    def of_batch(self, batch: pa.RecordBatch, fault: str | None) -> pa.RecordBatch:
        masks = list(self._masks(batch))
        if masks and fault is not None and batch.column(fault).null_count < batch.num_rows:
            is_fault = pc.is_valid(batch.column(fault))
            masks = [pc.or_kleene(mask, is_fault) for mask in masks]
        if not masks:
            return batch
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_kleene(mask, other)
        return batch.filter(mask)

    def _masks(self, batch: pa.RecordBatch) -> Iterable[pa.Array]:
        if self.tubes is not None or self.tube_pattern is not None:
            column = batch.column("tube")
            yield pc.or_kleene(pc.is_null(column), self._of_tubes(column))
        time = batch.schema.get_field_index(self.time)
        for bound, compare in ((self.since, pc.greater_equal), (self.until, pc.less)):
            if bound is not None:
                column = batch.column(time)
                yield compare(column.cast(pa.int64()), pa.scalar(bound))

    def _of_tubes(self, column: pa.Array) -> pa.Array:
        if self.tubes is not None:
            return pc.is_in(column, value_set=pa.array(sorted(self.tubes), pa.string()))
        assert self.tube_pattern is not None
        # Not by Arrow: RE2 differs from the expressions of Java and Python, which agree.
        expression = re.compile(self.tube_pattern)
        named = column.dictionary_encode()
        names = [
            name is not None and expression.fullmatch(name) is not None
            for name in named.dictionary.to_pylist()
        ]
        return pc.take(pa.array(names, pa.bool_()), named.indices)


_MOST_MILLISECONDS = (2**63 - 1) // 1000


def _microseconds(options: Options, option: str) -> int | None:
    text = options.text(option)
    if text is None:
        return None
    if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) is None:
        raise PipelineUsageError(f"{option} {text!r} is not a whole number of milliseconds")
    milliseconds = int(text)
    if abs(milliseconds) > _MOST_MILLISECONDS:
        raise PipelineUsageError(
            f"{option} {text} is outside the range of Spark's timestamps; give milliseconds"
        )
    return milliseconds * 1000


class RowFilter:
    """Applies a selection to batches of the table `decoded`, which has the columns for it."""

    def __init__(self, table: Table, selection: Selection) -> None:
        self._selection = selection
        self._names = table.schema.names
        needed = selection.columns() - set(self._names)
        more = [column for column in table.all if column.name in needed]
        self.decoded = replace(table, columns=(*table.columns, *more))
        self._has_extra_columns = bool(more)
        self._fault = table.fault.name if table.fault else None

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows, without empty batches."""
        for batch in batches:
            kept = self._selection.of_batch(batch, self._fault)
            if kept.num_rows:
                yield kept.select(self._names) if self._has_extra_columns else kept
