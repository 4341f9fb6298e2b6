"""Tables: a head, rows of cells that are HTML already, numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from beanstalkd_py.pipeline.report.markup import escape, tag


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; `number` columns stand to the right, `class_` is one of the style."""

    text: str
    number: bool = True
    class_: str = ""

    @property
    def classes(self) -> str | None:
        """For its cells."""
        return " ".join(filter(None, ("n" if self.number else "", self.class_))) or None


def table(says: str, heads: Sequence[Head], rows: Iterable[Sequence[str]], foot: str = "") -> str:
    """A table that scrolls by itself where it is wider than the page; `says` is its caption."""
    top = "".join(tag("th", escape(h.text), class_=h.classes, scope="col") for h in heads)
    body = "".join(tag("tr", _cells(heads, row)) for row in rows)
    content = tag("caption", escape(says)) + tag("thead", tag("tr", top)) + tag("tbody", body)
    if foot:
        content += tag("tfoot", tag("tr", tag("td", foot, colspan=len(heads))))
    return tag(
        "div", tag("table", content), class_="scrolls", tabindex=0, role="region", aria_label=says
    )


def _cells(heads: Sequence[Head], row: Sequence[str]) -> str:
    first, *others = zip(heads, row, strict=True)
    cells = tag("th", first[1], class_=first[0].classes, scope="row")
    return cells + "".join(tag("td", cell, class_=head.classes) for head, cell in others)


def tube_cell(name: str | None, host: str, many_hosts: bool) -> str:
    """The name of a tube as it stands in a row, with its host if there are several."""
    shown = escape(name) if name is not None else tag("i", "not known")
    cell = tag("span", shown, class_="tube", title=name)
    if many_hosts:
        cell += " " + tag("span", escape(host), class_="host", title=host)
    return cell
