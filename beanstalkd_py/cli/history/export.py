"""`history export`: messages as JSON lines or as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.history.message_format import Lines
from beanstalkd_py.cli.history.search import FILTER, Warned, between, explained, messages_of, span
from beanstalkd_py.cli.history.store_options import Place, StoredTube, told
from beanstalkd_py.cli.number_arguments import Bytes, Number
from beanstalkd_py.cli.output import counted, say

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.reader import StoreReader

JSON_LINES = "jsonl"
PARQUET = "parquet"


@click.command()
@between
@FILTER
@click.option(
    "--format",
    "form",
    type=click.Choice([JSON_LINES, PARQUET]),
    default=JSON_LINES,
    show_default=True,
    help="JSON lines, or Parquet (zstd), which needs PyArrow and --output.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as by default.")
@click.option(
    *("-o", "--output"),
    metavar="PATH",
    type=click.Path(),
    help="A Parquet file, or with --file-rows, --file-bytes or a / at the end a folder of them.",
)
@click.option(
    "--file-rows",
    metavar="N",
    type=Number("a number of rows", minimum=1),
    help="A file of the folder has at most so many rows.",
)
@click.option(
    "--file-bytes",
    metavar="BYTES",
    type=Bytes(least=1),
    help="And messages of at most so many bytes, before they are compressed; or one message.",
)
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
@explained
def export(
    place: Place,
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
      message_id        the one that RocketMQ's tools show
      keys, tags        the job id; how it ended
      stored_at         when it came into the store
      born_at           when the job was put
      born_host, store_host, reconsume_times, flag, sys_flag,
      prepared_offset, properties
      body              the body, if it is UTF-8; or instead
      body_base64       the body's bytes in base64

    Parquet has the same as columns: the two times with their type, properties as a map, body as
    bytes. Besides it has job_id, pri, delay, ttr, reserves, timeouts, releases, buries, kicks
    (whole numbers, null where a message has none) and timeline. A file appears when it is whole, in
    place of the one that was there; a folder has _SUCCESS when all of it is, and must have no
    Parquet file before.

    The whole store has RocketMQ's prepared and rolled back transactions, too, which no queue has.
    A damaged message is said on stderr and left out.

    CONDITIONS

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history export --from 1d > day.jsonl
      beanstalkd-py history --store /var/lib/history export mails | jq -r .body
      beanstalkd-py history --store /var/lib/history export \\
          --format parquet -o mails.parquet mails

    Exit status 1 if a message was damaged.
    """
    if as_json and form == PARQUET:
        raise errors.ToolUsageError("--json and --format parquet are two formats; give one of them")
    wanted = Warned(filters)
    target = _target(form, output, file_rows, file_bytes)
    with place.reading() as store:
        chosen = filter(wanted, _messages(place, store, tube, span(since, until)))
        if target is None:
            with Lines(as_json=True) as lines:
                for message in chosen:
                    lines.add(message)
        else:
            _write_parquet(chosen, target)
    wanted.warn()
    return place.status


@dataclass(frozen=True, slots=True)
class _Target:
    """Where Parquet goes. A folder's files have at most so many rows and bytes."""

    path: Path
    is_folder: bool
    rows: int | None
    bytes: int | None


def _target(
    form: str, output: str | None, file_rows: int | None, file_bytes: int | None
) -> _Target | None:
    """None: JSON lines. ToolUsageError."""
    if form != PARQUET:
        if file_rows or file_bytes or output is not None:
            raise errors.ToolUsageError(
                "JSON lines go to stdout; --output, --file-rows, --file-bytes need --format parquet"
            )
        return None
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        text = "Parquet needs PyArrow; pip install 'beanstalkd_py[parquet]' installs it"
        raise errors.ToolUsageError(f"{text} ({error})") from error
    if output is None:
        raise errors.ToolUsageError("Parquet goes to a file or a folder; give --output PATH")
    path = Path(output)
    is_folder = bool(file_rows or file_bytes) or output.endswith("/") or path.is_dir()
    if is_folder and path.exists() and not path.is_dir():
        raise errors.ToolUsageError(
            f"{path} is a file; give a folder for --file-rows, --file-bytes"
        )
    if is_folder and path.is_dir() and any(_results(path)):
        raise errors.ToolUsageError(
            f"{path} has Parquet files already; give a folder that has none, or remove them"
        )
    return _Target(path, is_folder, file_rows, file_bytes or None)


def _results(folder: Path) -> Iterator[Path]:
    from beanstalkd_py.history.queries.parquet import SUCCESS

    return (path for path in folder.iterdir() if path.suffix == ".parquet" or path.name == SUCCESS)


def _messages(
    place: Place, store: StoreReader, tube: str | None, limits: dict[str, int]
) -> Iterator[Stored]:
    # What fails to be read must not be taken for what fails to be written.
    with told(place.folder):
        yield from messages_of(place, store, tube, limits)


def _write_parquet(messages: Iterable[Stored], target: _Target) -> None:
    from beanstalkd_py.history.queries.parquet import write_file, write_folder

    try:
        if target.is_folder:
            written = write_folder(messages, target.path, target.rows, target.bytes)
        else:
            written = write_file(messages, target.path)
    except FileNotFoundError as error:
        raise errors.ToolUsageError(f"cannot write {target.path}: {error.strerror}") from error
    except OSError as error:
        raise errors.OutputError(f"cannot write {target.path}: {error.strerror}") from error
    rows, files = counted(written.rows, "message"), counted(written.files, "file")
    say(f"wrote {rows} to {target.path}; {files}, {counted(written.bytes, 'byte')}")
