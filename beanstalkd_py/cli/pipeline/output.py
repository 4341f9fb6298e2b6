"""Where rows of Spark go: a folder of files, or stdout; and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.number_arguments import Limit
from beanstalkd_py.cli.output import counted, say
from beanstalkd_py.cli.path_completion import complete_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from beanstalkd_py.cli.pipeline.spark_options import Running

FORMATS = ("parquet", "orc", "csv", "json")
ON_STDOUT = ("csv", "json")
TABLE_ROWS = 20
_OPTIONS = (
    click.option(
        *("-o", "--output"),
        metavar="FOLDER",
        shell_complete=complete_folder,
        help="A new folder for the rows, on any file system that Spark reaches.",
    ),
    click.option("--overwrite", is_flag=True, help="In place of the folder that is there."),
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        help="Of the files (parquet); csv and json (lines) also go to stdout.",
    ),
    click.option("--json", "as_json", is_flag=True, help="JSON lines on stdout, for programs."),
    click.option(
        "--limit",
        metavar="N",
        type=Limit("a number of rows"),
        help=f"The first N rows on stdout; none: all. [default: {TABLE_ROWS} of a table]",
    ),
)


def to_output(command: Any) -> Any:
    """Adds the options; `Target.of` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Target:
    """What the options say."""

    output: str | None
    form: str | None
    overwrite: bool
    limit: int | None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Target:
        """Takes them out of all options. ToolUsageError."""
        output, form, limit = given.pop("output"), given.pop("form"), given.pop("limit")
        overwrite = given.pop("overwrite")
        if given.pop("as_json"):
            if output is not None or form not in (None, "json"):
                raise errors.ToolUsageError("--json is for stdout; files get --format json")
            form = "json"
        if output is None and overwrite:
            raise errors.ToolUsageError("--overwrite needs --output FOLDER")
        if output is None and form not in (None, *ON_STDOUT):
            raise errors.ToolUsageError(f"{form} goes into files; give --output FOLDER")
        if output is not None and limit is not None:
            raise errors.ToolUsageError("--limit is for stdout; leave it out with --output")
        return cls(output, form, overwrite, limit)

    @property
    def is_folder(self) -> bool:
        """Whether rows go to files."""
        return self.output is not None

    def write(
        self, running: Running, rows: DataFrame, shown: Sequence[str], begun_mono: float
    ) -> int:
        """All rows that are wanted; how many they were. Raises PipelineUsageError and others."""
        if self.output is None:
            return self._to_stdout(running, rows, shown, begun_mono)
        from beanstalkd_py.pipeline.results import write_result

        form = self.form or FORMATS[0]
        count = write_result(running.spark, rows, self.output, form, self.overwrite)
        running.hide()
        say(f"wrote {counted(count, 'row')} to {self.output} in {_since(begun_mono)}")
        return count

    def _to_stdout(
        self, running: Running, rows: DataFrame, shown: Sequence[str], begun_mono: float
    ) -> int:
        from beanstalkd_py.cli.pipeline.rows import TABLE, show

        form = self.form or TABLE
        usual = TABLE_ROWS if form == TABLE else 0
        limit = usual if self.limit is None else self.limit
        count, are_more = show(rows, form, limit, shown, running.hide)
        more = "; there are more: --limit none shows all" if are_more else ""
        say(f"{counted(count, 'row')} in {_since(begun_mono)}{more}")
        return count


def tell_damage(places: int) -> None:
    """What could not be read, if anything."""
    if places:
        say(
            f"{counted(places, 'place')} could not be read and left out;"
            " 'binlog verify' and 'history verify' tell where"
        )


def _since(begun_mono: float) -> str:
    return f"{time.monotonic() - begun_mono:.1f} s"
