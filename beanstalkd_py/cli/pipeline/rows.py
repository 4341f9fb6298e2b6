"""Print rows of Spark on stdout as a table, JSON lines or CSV."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from beanstalkd_py.cli.output import Row, Table, readable_line, write, write_line, write_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TABLE, JSON, CSV = "table", "json", "csv"
_MAX_WIDTH = 80
"""Characters of a cell."""
_NOTHING = "-"
_QUOTED_IN_CSV = re.compile(r'[,"\r\n]')
_TABLE_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def show(
    rows: DataFrame, form: str, limit: int, shown: Sequence[str], before: Callable[[], None]
) -> tuple[int, bool]:
    """Print up to `limit` rows, 0 for all; return their number and whether there are more.

    `shown` are the columns of a table, () for all. `before` is called before the first row.
    """
    if form == TABLE:
        return _show_table(rows.select(*shown) if shown else rows, limit, before)
    lines = _json_lines(rows) if form == JSON else _csv_lines(rows)
    # An additional row shows whether there are more.
    iterator = (lines.limit(limit + 1) if limit else lines).toLocalIterator(prefetchPartitions=True)
    first = next(iterator, None)
    before()
    if form == CSV:
        write(_csv_line(rows.columns))
    count = 0
    for row in [] if first is None else itertools.chain([first], iterator):
        if limit and count == limit:
            return count, True
        write_line(row[0]) if form == JSON else write(_csv_line(row))
        count += 1
    return count, False


def _show_table(rows: DataFrame, limit: int, before: Callable[[], None]) -> tuple[int, bool]:
    cells = rows.select(*(_cell(rows, name) for name in rows.columns))
    collected = (cells.limit(limit + 1) if limit else cells).collect()
    printed = collected[:limit] if limit else collected
    lines: list[Row] = [[_text(value) for value in row] for row in printed]
    before()
    write_table(Table(rows.columns, lines))
    return len(lines), len(collected) > len(lines)


def _cell(rows: DataFrame, name: str) -> Column:
    """Convert times in Spark's time zone and nested values to strings."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    from beanstalkd_py.pipeline.results import TIMES, rows_column

    column, kind = rows_column(name), rows.schema[name].dataType
    if isinstance(kind, TimestampType):
        return f.date_format(column, _TABLE_TIME).alias(name)
    if isinstance(kind, (ArrayType, MapType, StructType)):
        return f.to_json(column, {"timestampFormat": TIMES}).alias(name)
    return column


def _text(value: Any) -> str | int | float:
    match value:
        case None:
            return _NOTHING
        case bool():
            return str(value).lower()
        case float():
            return round(value, 3)
        case int():
            return value
        case bytes() | bytearray():
            text = readable_line(bytes(value))
        case _:
            text = readable_line(str(value).encode("utf-8", "surrogatepass"))
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


def _json_lines(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    from beanstalkd_py.pipeline.results import JSON_OPTIONS, rows_column

    whole = f.struct(*(rows_column(name) for name in rows.columns))
    return rows.select(f.to_json(whole, JSON_OPTIONS))


def _csv_lines(rows: DataFrame) -> DataFrame:
    """Return lines in the format of `results.write_result`."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType, TimestampType

    from beanstalkd_py.pipeline.results import TIMES, flat, rows_column

    plain, cells = flat(rows), []
    for field in plain.schema.fields:
        column = rows_column(field.name)
        if isinstance(field.dataType, TimestampType):
            column = f.date_format(column, TIMES)
        elif isinstance(field.dataType, BooleanType):
            column = column.cast("string")
        cells.append(column.alias(field.name))
    return plain.select(*cells)


def _csv_line(cells: Iterable[Any]) -> bytes:
    # Unlike the module csv, Spark distinguishes null from an empty string.
    line = ",".join(map(_csv_cell, cells)) or '""'
    return f"{line}\n".encode("utf-8", "surrogateescape")


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    if text and not _QUOTED_IN_CSV.search(text):
        return text
    return '"{}"'.format(text.replace('"', '""'))
