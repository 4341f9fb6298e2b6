"""Spark schemas of tables, and partitions of files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import Column, Table

OPTIONS = "beanstalkd_py.options"
"""Key of the metadata of a schema's first column."""


class FilesPartition(InputPartition):
    """The files of a task; `known` are files of the whole read."""

    def __init__(self, files: Sequence[Any], known: Sequence[Any] = ()) -> None:
        self.files = tuple(files)
        self.known = tuple(known)


def struct_of(table: Table) -> StructType:
    return from_arrow_schema(table.schema)


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Put options into the schema of a table: Spark keeps that alone for Python sources."""
    schema.fields[0].metadata = {OPTIONS: json.dumps(dict(options))}
    return schema


def options_in(schema: StructType) -> dict[str, str]:
    """Return the options that `with_options` has put into a schema."""
    options: dict[str, str] = {}
    for field in schema.fields[:1]:
        options = json.loads(field.metadata.get(OPTIONS, "{}"))
    return options


def table_of(table: Table, schema: StructType) -> Table:
    """Return the columns that a schema names, in its order. Raises PipelineUsageError."""
    by_name = {column.name: column for column in table.all}
    chosen: list[Column] = []
    for field in schema.fields:
        column = by_name.get(field.name)
        if column is None:
            known = ", ".join(by_name)
            raise PipelineUsageError(f"no column {field.name!r}; there are {known}")
        wanted = from_arrow_type(column.type)
        if field.dataType != wanted:
            raise PipelineUsageError(
                f"column {field.name} is {wanted.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
        if column in chosen:
            raise PipelineUsageError(f"column {field.name} is twice in the schema; name it once")
        if not field.nullable:
            raise PipelineUsageError(
                f"column {field.name} may be null, as in the row of an unreadable entry; leave NOT"
                " NULL (nullable=False) out of the schema"
            )
        chosen.append(column)
    return replace(table, columns=tuple(chosen))
