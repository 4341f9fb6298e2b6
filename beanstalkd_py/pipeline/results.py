"""Writes rows to a folder of Parquet, ORC, CSV or JSON files, atomically.

Spark writes to a hidden folder that is then renamed. The rename is not atomic on object stores such
as S3, which rename file by file. Spark Connect cannot rename: there, a folder is complete once it
has `_SUCCESS`.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameWriter, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from beanstalkd_py.errors import PipelineError, PipelineUsageError
from beanstalkd_py.pipeline.sources.connect import is_connect
from beanstalkd_py.pipeline.sources.frames import qualified
from beanstalkd_py.pipeline.sources.paths import local, true_path

TIME_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
"""INT64 in Parquet. Spark's default INT96 is deprecated, and other readers take it for local."""
TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
JSON_OPTIONS = {"timestampFormat": TIMES, "ignoreNullFields": "false"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "parquet": {"compression": "zstd"},
    "orc": {"compression": "zstd"},
    # RFC 4180 quotes; Spark's defaults truncate times to milliseconds and strip text.
    "csv": {
        "header": "true",
        "timestampFormat": TIMES,
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "json": JSON_OPTIONS,
}
_RESULT_FILE = re.compile(r"_SUCCESS|part-.*|\..*\.crc")
"""Files that Spark writes."""
_NESTED = (ArrayType, MapType, StructType)


def write_result(
    spark: SparkSession, rows: DataFrame, output: str, form: str, overwrite: bool = False
) -> int:
    """Write rows to the folder `output` and return their number.

    `form` is parquet, orc, csv or json. CSV has nested columns as JSON and bytes in base64. With
    `overwrite` an existing result is replaced once the new one is complete. Raises
    PipelineUsageError.
    """
    spark.conf.set(*TIME_TYPE)
    counted = Observation()
    shaped = flat(rows) if form == "csv" else rows
    observed = shaped.observe(counted, f.count(f.lit(1)).alias("rows"))
    writer = observed.write.format(form).options(**_OPTIONS[form])
    if is_connect(spark):
        _save(spark, writer, output, overwrite)
    else:
        folder = _Folder(spark, output)
        folder.check(overwrite)
        with folder.replaced() as unfinished:
            writer.save(unfinished)
    return int(counted.get["rows"])


def _save(spark: SparkSession, writer: DataFrameWriter, output: str, overwrite: bool) -> None:
    """Write to a folder of a Connect server, which does not list or rename folders."""
    if overwrite:
        raise PipelineUsageError(
            "--overwrite does not work through Spark Connect, which cannot list the files that it"
            " would remove; give another folder"
        )
    (path,) = qualified(spark, output)
    try:
        writer.save(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise PipelineUsageError(f"output {output} exists; give another folder") from error


def flat(rows: DataFrame) -> DataFrame:
    return rows.select(*(_cell(field.name, field.dataType) for field in rows.schema.fields))


def _cell(name: str, kind: Any) -> Column:
    column = rows_column(name)
    if isinstance(kind, _NESTED):
        return f.to_json(column, JSON_OPTIONS).alias(name)
    if isinstance(kind, BinaryType):
        return f.base64(column).alias(name)
    return column


def with_unique_names(rows: DataFrame) -> DataFrame:
    """Rename the second of two columns `a` to `a_2`: files need unique names."""
    taken: set[str] = set()
    names: list[str] = []
    for name in rows.columns:
        count, free = 1, name
        while free.lower() in taken:
            count += 1
            free = f"{name}_{count}"
        taken.add(free.lower())
        names.append(free)
    return rows.toDF(*names)


def rows_column(name: str) -> Column:
    return f.col("`{}`".format(name.replace("`", "``")))


class _Folder:
    def __init__(self, spark: SparkSession, output: str) -> None:
        (path,) = qualified(spark, output)
        context: Any = spark.sparkContext
        local_path = local(path)
        if local_path is not None and Path(local_path).is_symlink():
            path = true_path(local_path)  # replace the target, not the link
        self._name = output
        self._hadoop_path = context._jvm.org.apache.hadoop.fs.Path
        self._path = self._hadoop_path(path.rstrip("/") or "/")
        self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())

    def check(self, overwrite: bool) -> None:
        if not self._files.exists(self._path):
            return
        if not overwrite:
            raise PipelineUsageError(
                f"output {self._name} exists; give another folder, or --overwrite"
            )
        if not self._files.getFileStatus(self._path).isDirectory():
            raise PipelineUsageError(f"output {self._name} is a file; give a folder")
        entries = list(self._files.listStatus(self._path))
        names = [each.getPath().getName() if each.isFile() else "" for each in entries]
        is_result = "_SUCCESS" in names and all(map(_RESULT_FILE.fullmatch, names))
        if entries and not is_result:
            raise PipelineUsageError(
                f"output {self._name} has files that are not a result, which --overwrite does not"
                " remove; give another folder"
            )

    @contextlib.contextmanager
    def replaced(self) -> Iterator[str]:
        """Yield a folder to write to, which replaces the old one without an error."""
        mark = uuid.uuid4().hex[:12]
        unfinished = self._beside(f"unfinished-{mark}")
        try:
            yield str(unfinished.toString())
            if self._files.exists(self._path):
                self._replace(unfinished, self._beside(f"replaced-{mark}"))
            else:
                self._rename(unfinished, self._path)
        finally:
            self._files.delete(unfinished, True)

    def _replace(self, new: Any, old: Any) -> None:
        self._rename(self._path, old)
        try:
            self._rename(new, self._path)
        except BaseException:
            self._rename(old, self._path)
            raise
        self._files.delete(old, True)

    def _beside(self, mark: str) -> Any:
        return self._hadoop_path(self._path.getParent(), f".{self._path.getName()}.{mark}")

    def _rename(self, old: Any, new: Any) -> None:
        if not self._files.rename(old, new):
            raise PipelineError(f"cannot rename {old.toString()} to {new.toString()}")
