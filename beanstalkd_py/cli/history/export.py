"""`history export`: messages as JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.argument_types import Bytes
from beanstalkd_py.cli.history.message_format import Lines
from beanstalkd_py.cli.history.search import (
    Filters,
    filter_option,
    messages_of,
    time_range,
    time_range_options,
)
from beanstalkd_py.cli.history.store_options import StoredTube, StoreOptions, translate_errors
from beanstalkd_py.cli.options import count_option, option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.plural import counted

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.queries.parquet import Written
    from beanstalkd_py.history.reader import StoreReader

JSON_LINES = "jsonl"
PARQUET = "parquet"


@click.command()
@time_range_options
@filter_option
@option(
    "--format form",
    "JSON lines, or Parquet (zstd), which requires PyArrow and --output.",
    click.Choice([JSON_LINES, PARQUET]),
    default=JSON_LINES,
)
@option("--json as_json", "Print JSON lines (the default).", is_flag=True)
@option(
    "-o --output",
    "Parquet file, or a folder of files with --file-rows, --file-bytes or a / at the end.",
    click.Path(),
    metavar="PATH",
)
@count_option("--file-rows", "Maximum rows of a file.", "rows", minimum=1)
@option("--file-bytes", "Maximum bytes of messages in a file, before compression.", Bytes(1))
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
def export(
    options: StoreOptions,
    since: int | None,
    until: int | None,
    filters: tuple[str, ...],
    form: str,
    as_json: bool,
    output: str | None,
    file_rows: int | None,
    file_bytes: int | None,
    tube: str | None,
) -> int:
    """Write messages of the store, or of TUBE, in log order.

    \b
    A JSON line is an object:
      tube, topic, queue_id, queue_offset
      offset, size      in the log, bytes
      message_id        as in RocketMQ's tools
      keys, tags        the job id; how the job ended
      stored_at         time of storing
      born_at           time of the put
      born_host, store_host, reconsume_times, flag, sys_flag,
      prepared_offset, properties
      body              the body, if it is UTF-8; otherwise
      body_base64       the body's bytes in base64

    Parquet has the same columns, with times as timestamps, properties as a map and body as bytes.
    Additional columns are job_id, pri, delay, ttr, reserves, timeouts, releases, buries, kicks
    (integers, null if a message has none) and timeline. A file replaces an existing one when it is
    complete. A folder must not have Parquet files before; it gets _SUCCESS when it is complete.

    Without TUBE, the output includes RocketMQ's prepared and rolled back transactions, which are in
    no queue. Damaged messages are reported on stderr and skipped.

    CONDITIONS

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history export --from 1d > day.jsonl
      beanstalkd-py history --store /var/lib/history export mails | jq -r .body
      beanstalkd-py history --store /var/lib/history export \\
          --format parquet -o mails.parquet mails

    Exit status 1 for a damaged message.
    """
    if as_json and form == PARQUET:
        raise errors.ToolUsageError("--json and --format parquet exclude each other")
    matches = Filters(filters)
    write = _writer(form, output, file_rows, file_bytes)

    def messages(store: StoreReader) -> Iterator[Stored]:
        # Read errors must not be reported as write errors.
        with translate_errors(options.folder):
            yield from messages_of(options, store, tube, time_range(since, until))

    with options.reading() as store:
        write(filter(matches, messages(store)))
    matches.warn()
    return options.status


def _writer(
    form: str, output: str | None, file_rows: int | None, file_bytes: int | None
) -> Callable[[Iterable[Stored]], None]:
    """Return a function that writes messages. Raises ToolUsageError."""
    if form == PARQUET:
        return _parquet_writer(output, file_rows, file_bytes)
    if file_rows or file_bytes or output is not None:
        raise errors.ToolUsageError(
            "--output, --file-rows and --file-bytes require --format parquet"
        )
    return _write_lines


def _write_lines(messages: Iterable[Stored]) -> None:
    with Lines(as_json=True) as lines:
        for message in messages:
            lines.add(message)


def _parquet_writer(
    output: str | None, file_rows: int | None, file_bytes: int | None
) -> Callable[[Iterable[Stored]], None]:
    """Return a function that writes messages to a file or folder. Raises ToolUsageError."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        text = "Parquet requires PyArrow; run pip install 'beanstalkd_py[parquet]'"
        raise errors.ToolUsageError(f"{text} ({error})") from error
    from beanstalkd_py.history.queries import parquet

    if output is None:
        raise errors.ToolUsageError("--format parquet requires --output PATH")
    path = Path(output)
    if not (file_rows or file_bytes or output.endswith("/") or path.is_dir()):
        return partial(_write_parquet, path, partial(parquet.write_file, path=path))
    if path.exists() and not path.is_dir():
        raise errors.ToolUsageError(
            f"{path} is a file; --file-rows and --file-bytes require a folder"
        )
    names = path.iterdir() if path.is_dir() else ()
    if any(each.suffix == ".parquet" or each.name == parquet.SUCCESS for each in names):
        raise errors.ToolUsageError(
            f"{path} already has Parquet files; remove them, or use another folder"
        )
    write = partial(
        parquet.write_folder, folder=path, most_rows=file_rows, most_bytes=file_bytes or None
    )
    return partial(_write_parquet, path, write)


def _write_parquet(
    path: Path, write: Callable[[Iterable[Stored]], Written], messages: Iterable[Stored]
) -> None:
    try:
        written = write(messages)
    except FileNotFoundError as error:
        raise errors.ToolUsageError(f"cannot write {path}: {error.strerror}") from error
    except OSError as error:
        raise errors.OutputError(f"cannot write {path}: {error.strerror}") from error
    rows, files = counted(written.rows, "message"), counted(written.files, "file")
    notice(f"wrote {rows} to {path}; {files}, {counted(written.bytes, 'byte')}")
