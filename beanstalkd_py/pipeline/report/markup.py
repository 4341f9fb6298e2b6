"""HTML: escaping, elements, tables and colours. All text from users is escaped here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape
from typing import Generic, TypeVar

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff]"
)


COLOURS = {
    "put": "series-1",
    "finished": "series-3",
    "bodies": "series-1",
    "ready": "series-1",
    "ready or reserved": "line-2",
    "reserved": "series-2",
    "delayed": "series-3",
    "buried": "series-4",
    "unknown": "text",
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "timeouts": "series-2",
    "releases": "line-strong",
    "buries": "series-4",
    "kicks": "series-3",
    "live": "series-1",
    "dead": "line-2",
}
"""Variables of the style sheet. States, puts and ends have the colours of the console."""
DASHED = ("delayed", "timeouts", "kicks")
"""Their colours are close to others for the colour-blind."""


def escape(text: str) -> str:
    return _escape(_UNSEEN.sub(_shown, text), quote=True)


def _shown(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element with HTML content. `class_` is class, other `_` are `-`."""
    return f"<{name}{_attributes(attributes)}>{content}</{name}>"


def _attributes(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )


Row = TypeVar("Row")


@dataclass(frozen=True)  # slots=True fails for a generic class of Python 3.11
class Column(Generic[Row]):
    """A column of a table; `cell` returns HTML. The CSS class `n` is that of numbers."""

    head: str
    cell: Callable[[Row], str]
    class_: str | None = "n"


def table(caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row], foot: str = "") -> str:
    """Return a table that scrolls if it is wider than the page; `foot` is HTML."""
    top = "".join(tag("th", escape(c.head), class_=c.class_, scope="col") for c in columns)
    body = "".join(tag("tr", _cells(columns, row)) for row in rows)
    content = tag("caption", escape(caption)) + tag("thead", tag("tr", top)) + tag("tbody", body)
    if foot:
        content += tag("tfoot", tag("tr", tag("td", foot, colspan=len(columns))))
    return tag(
        "div",
        tag("table", content),
        class_="scrolls",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _cells(columns: Sequence[Column[Row]], row: Row) -> str:
    first, *others = columns
    cells = tag("th", first.cell(row), class_=first.class_, scope="row")
    return cells + "".join(tag("td", c.cell(row), class_=c.class_) for c in others)


def tube_cell(name: str | None, host: str, many_hosts: bool) -> str:
    shown = escape(name) if name is not None else tag("i", "unknown")
    cell = tag("span", shown, class_="tube", title=name)
    if many_hosts:
        cell += " " + tag("span", escape(host), class_="host", title=host)
    return cell


def file_cell(host: str, shard: str, file: str, many_hosts: bool) -> str:
    return escape(" ".join(filter(None, (host if many_hosts else "", shard, file))))


def colour_of(name: str) -> str:
    """Return the CSS variable of the colour."""
    return f"--{COLOURS[name]}"


def colour_sample(name: str, size: str = "") -> str:
    """Return a sample of the colour; `size` is CSS."""
    class_ = "dashed" if name in DASHED else None
    return tag("i", class_=class_, style=f"--colour:var({colour_of(name)});{size}")


def colour_key(names: Iterable[str]) -> str:
    """Return the names with samples of their colours."""
    return "".join(tag("span", colour_sample(name) + escape(name)) for name in names)
