"""Output of commands: tables, job bodies and JSON on stdout, notices on stderr.

rich draws tables on a terminal. Elsewhere they are aligned text without colours, for which rich is
not imported. The program ends silently if the reader of stdout has closed the pipe.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from beanstalkd_py import PROTOCOL_VERSION, __version__, errors

PROGRAM = "beanstalkd-py"
_GAP = 2
"""Spaces between two columns of a table."""
_CLEAR_TO_END = "\x1b[K"
_HOME = "\x1b[H"
_CLEAR_BELOW = "\x1b[J"
_CLEAR_ALL = "\x1b[2J"

Row = Sequence[str | int | float]


def _version_text() -> str:
    """Return the versions, and the commit if the package was built from a checkout or a release."""
    try:
        commit = (Path(__file__).parents[1] / "commit.txt").read_text(encoding="ascii")
    except FileNotFoundError:
        return f"beanstalkd_py {__version__} (beanstalkd {PROTOCOL_VERSION})"
    return f"beanstalkd_py {__version__} (commit {commit.strip()}, beanstalkd {PROTOCOL_VERSION})"


VERSION_TEXT = _version_text()


@dataclass
class Table:
    """Headings and rows. Numbers are right-aligned; `marked` cells (row, column) are bold."""

    headings: Sequence[str]
    rows: list[Row]
    marked: set[tuple[int, int]] = field(default_factory=set)

    def widths(self) -> list[int]:
        lines = [self.headings, *self.rows]
        return [max(len(str(cell)) for cell in column) for column in zip(*lines, strict=True)]

    def is_number(self, column: int) -> bool:
        return any(not isinstance(row[column], str) for row in self.rows)

    def without(self, column: int) -> Table:
        lines = [self.headings, *self.rows]
        headings, *rows = [[*line[:column], *line[column + 1 :]] for line in lines]
        marked = {(row, at - (at > column)) for row, at in self.marked if at != column}
        return Table([str(heading) for heading in headings], list(rows), marked)


def notice(text: str) -> None:
    """Print one line on stderr."""
    click.echo(f"{PROGRAM}: {text}", err=True)


def show_status(text: str) -> None:
    """Replace the text of the current line of stderr, if that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{text}{_CLEAR_TO_END}", err=True, nl=False)


def write(data: bytes) -> None:
    """Write bytes to stdout and flush. Raises OutputError, ReaderGoneError."""
    out = sys.stdout.buffer
    try:
        out.write(data)
        out.flush()
    except OSError as error:
        # Python flushes the rest of the buffer at its exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise errors.ReaderGoneError from error
        raise errors.OutputError(f"cannot write to stdout: {error.strerror}") from error


def write_line(text: str) -> None:
    write(text.encode("utf-8", "surrogateescape") + b"\n")


def write_json(value: Any) -> None:
    import json

    write_line(json.dumps(value))


def write_result(as_json: bool, value: Any, text: str) -> None:
    if as_json:
        write_json(value)
    else:
        write_line(text)


def write_body(body: bytes) -> None:
    """Write a job's body byte for byte, on a terminal with control characters escaped."""
    if sys.stdout.isatty():
        write_line(readable(body))
    else:
        write(body)


def readable(body: bytes) -> str:
    """Return a body as text with all control characters escaped but newline and tab."""
    text = body.decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def readable_line(body: bytes) -> str:
    return readable(body).replace("\n", "\\n").replace("\t", "\\t")


def write_table(table: Table) -> None:
    write(table_text(table).encode())


def table_text(table: Table) -> str:
    return _drawn([table]) if sys.stdout.isatty() else _plain(table)


def write_screen(tables: Sequence[Table], title: str, first: bool) -> None:
    """Replace the contents of the terminal; elsewhere append the tables and an empty line."""
    if not sys.stdout.isatty():
        texts = [title + "\n", *map(_plain, tables), "\n"]
        write("".join(texts).encode())
        return
    lines = [title, *_drawn(tables).splitlines()]
    # A longer screen would scroll its top away.
    lines = lines[: max(2, os.get_terminal_size(sys.stdout.fileno()).lines - 1)]
    body = "".join(f"{line}{_CLEAR_TO_END}\n" for line in lines)
    write(((_CLEAR_ALL if first else "") + _HOME + body + _CLEAR_BELOW).encode())


def _plain(table: Table) -> str:
    columns = list(enumerate(table.widths()))
    aligned = [str.rjust if table.is_number(column) else str.ljust for column, _ in columns]
    text = ""
    for row in [table.headings, *table.rows]:
        cells = [aligned[column](str(row[column]), width) for column, width in columns]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _drawn(tables: Sequence[Table]) -> str:
    import io

    from rich.columns import Columns
    from rich.console import Console

    tables = [_fitting(table, _width()) for table in tables]
    # Lines that the terminal wraps are better than truncated numbers.
    width = max(_width(), *(_drawn_width(table) for table in tables))
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    with console.capture() as captured:
        console.print(Columns([_rich_table(table) for table in tables], padding=(0, 4)))
    # Trailing spaces would wrap on a terminal that has become narrower meanwhile.
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _fitting(table: Table, width: int) -> Table:
    """Remove columns of zeros from the last one on until the table fits."""
    for column in reversed(range(1, len(table.headings))):
        if _drawn_width(table) > width and all(row[column] == 0 for row in table.rows):
            table = table.without(column)
    return table


def _drawn_width(table: Table) -> int:
    return sum(table.widths()) + _GAP * len(table.headings)


def _width() -> int:
    return max(20, os.get_terminal_size(sys.stdout.fileno()).columns or 80)


def _rich_table(table: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False)
    for column, heading in enumerate(table.headings):
        right = table.is_number(column)
        drawn.add_column(heading, justify="right" if right else "left", no_wrap=right)
    for row_number, row in enumerate(table.rows):
        cells = []
        for column, cell in enumerate(row):
            style = "dim" if cell == 0 else ""
            cells.append(Text(str(cell), "bold" if (row_number, column) in table.marked else style))
        drawn.add_row(*cells)
    return drawn
