"""Output of rows of Spark: a folder of files, or stdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Limit
from beanstalkd_py.cli.options import complete_folder, in_order, option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from beanstalkd_py.cli.pipeline.spark_options import Running

FORMATS = ("parquet", "orc", "csv", "json")
ON_STDOUT = ("csv", "json")
TABLE_ROWS = 20
INCOMPLETE = 1
"""Exit status: the result lacks damaged places or removed files, or has violations."""
_OPTIONS = in_order(
    option(
        "-o --output",
        "New folder for the rows, on any file system that Spark supports.",
        metavar="FOLDER",
        shell_complete=complete_folder,
    ),
    option("--overwrite", "Replace an existing folder.", is_flag=True),
    option(
        "--format form",
        "Format of the files (parquet); csv and json (lines) also work on stdout.",
        click.Choice(FORMATS),
    ),
    option("--json as_json", "Print JSON lines on stdout.", is_flag=True),
    option(
        "--limit",
        f"Print N rows on stdout; none prints all.  [default: {TABLE_ROWS} for a table]",
        Limit("a number of rows"),
        metavar="N",
    ),
)


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of rows: a folder of files, or stdout if `output` is None."""

    output: str | None
    form: str | None
    overwrite: bool
    limit: int | None

    def __post_init__(self) -> None:
        if self.output is None and self.overwrite:
            raise errors.ToolUsageError("--overwrite requires --output FOLDER")
        if self.output is None and self.form not in (None, *ON_STDOUT):
            raise errors.ToolUsageError(f"--format {self.form} requires --output FOLDER")
        if self.output is not None and self.limit is not None:
            raise errors.ToolUsageError("--limit applies to stdout; omit it with --output")

    def write(self, running: Running, rows: DataFrame, shown: Sequence[str] = ()) -> int:
        """Write rows and return their number; `shown` are the columns of a table, () for all."""
        if self.output is None:
            return self._to_stdout(running, rows, shown)
        from beanstalkd_py.pipeline.results import write_result

        form = self.form or FORMATS[0]
        count = write_result(running.spark, rows, self.output, form, self.overwrite)
        running.hide_progress()
        notice(f"wrote {counted(count, 'row')} to {self.output} in {running.took}")
        return count

    def _to_stdout(self, running: Running, rows: DataFrame, shown: Sequence[str]) -> int:
        from beanstalkd_py.cli.pipeline.rows import TABLE, show

        form = self.form or TABLE
        default = TABLE_ROWS if form == TABLE else 0
        limit = default if self.limit is None else self.limit
        count, are_more = show(rows, form, limit, shown, running.hide_progress)
        more = "; use --limit none to print all rows" if are_more else ""
        notice(f"{counted(count, 'row')} in {running.took}{more}")
        return count


def output_options(function: Callable[..., Any]) -> Any:
    """Add the options; the command gets `target`. Raises ToolUsageError."""

    @wraps(function)
    def command(
        *args: Any,
        output: str | None,
        form: str | None,
        overwrite: bool,
        limit: int | None,
        as_json: bool,
        **arguments: Any,
    ) -> Any:
        if as_json:
            if output is not None or form not in (None, "json"):
                raise errors.ToolUsageError("--json writes to stdout; use --format json for files")
            form = "json"
        return function(*args, target=Target(output, form, overwrite, limit), **arguments)

    return _OPTIONS(command)


def damage_status(damaged: int, removed: int = 0) -> int:
    """Report damaged places and removed files that a result lacks; return the exit status."""
    if removed:
        notice(f"skipped {counted(removed, 'file')} removed before being read")
    if damaged:
        notice(
            f"skipped {counted(damaged, 'damaged place')};"
            " 'binlog verify' and 'history verify' list them"
        )
    return INCOMPLETE if damaged or removed else 0
