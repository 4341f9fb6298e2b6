"""Spark schemas of tables, and partitions of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.sources.columns import (
    BINARY,
    FLAG,
    INT,
    LONG,
    PAIRS,
    STRING,
    TIME,
    WORDS,
    Column,
    Table,
)

_TYPES: tuple[tuple[pa.DataType, DataType], ...] = (
    (STRING, StringType()),
    (BINARY, BinaryType()),
    (LONG, LongType()),
    (INT, IntegerType()),
    (FLAG, BooleanType()),
    (TIME, TimestampType()),
    (WORDS, ArrayType(StringType())),
    (PAIRS, MapType(StringType(), StringType())),
)


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[Any]) -> None:
        self.files = tuple(files)


def _spark_type(data_type: pa.DataType) -> DataType:
    return next(spark for arrow, spark in _TYPES if arrow == data_type)


def struct_of(table: Table) -> StructType:
    return StructType([StructField(each.name, _spark_type(each.type)) for each in table.columns])


def table_of(table: Table, schema: StructType) -> Table:
    """Return the columns that a schema names, in its order. Raises PipelineUsageError."""
    by_name = {column.name: column for column in table.all}
    chosen: list[Column] = []
    for field in schema.fields:
        column = by_name.get(field.name)
        if column is None:
            known = ", ".join(by_name)
            raise PipelineUsageError(f"no column {field.name!r}; there are {known}")
        wanted = _spark_type(column.type)
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
