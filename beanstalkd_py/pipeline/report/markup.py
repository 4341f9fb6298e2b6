"""HTML: escaping, elements and tables. All text from users is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff]"
)


def escape(text: str) -> str:
    return _escape(_UNSEEN.sub(_shown, text), quote=True)


def _shown(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element with HTML content. `class_` is class, other `_` are `-`."""
    return f"<{name}{_attributes(attributes)}>{content}</{name}>"


def mark(name: str, **attributes: object) -> str:
    return f"<{name}{_attributes(attributes)}/>"


def _attributes(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )


def _short(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def number(value: float) -> str:
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; `number` columns are right-aligned."""

    text: str
    number: bool = True
    class_: str = ""

    @property
    def classes(self) -> str | None:
        return " ".join(filter(None, ("n" if self.number else "", self.class_))) or None


def table(
    caption: str, heads: Sequence[Head], rows: Iterable[Sequence[str]], foot: str = ""
) -> str:
    """Return a table that scrolls if it is wider than the page; cells are HTML."""
    top = "".join(tag("th", escape(h.text), class_=h.classes, scope="col") for h in heads)
    body = "".join(tag("tr", _cells(heads, row)) for row in rows)
    content = tag("caption", escape(caption)) + tag("thead", tag("tr", top)) + tag("tbody", body)
    if foot:
        content += tag("tfoot", tag("tr", tag("td", foot, colspan=len(heads))))
    return tag(
        "div",
        tag("table", content),
        class_="scrolls",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _cells(heads: Sequence[Head], row: Sequence[str]) -> str:
    first, *others = zip(heads, row, strict=True)
    cells = tag("th", first[1], class_=first[0].classes, scope="row")
    return cells + "".join(tag("td", cell, class_=head.classes) for head, cell in others)


def tube_cell(name: str | None, host: str, many_hosts: bool) -> str:
    shown = escape(name) if name is not None else tag("i", "unknown")
    cell = tag("span", shown, class_="tube", title=name)
    if many_hosts:
        cell += " " + tag("span", escape(host), class_="host", title=host)
    return cell
