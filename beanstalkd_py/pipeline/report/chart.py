"""The HTML of a chart: legend, data for charts.js, and a table of its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from beanstalkd_py.pipeline.report.markup import DASHED, colour_of, colour_sample, escape, tag
from beanstalkd_py.pipeline.report.numbers import NONE

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A value for each row of a chart; the label selects the colour, `filled` fills down to 0."""

    label: str
    values: Values
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over rows with the names `rows`. `options` are those of charts.js.

    `head` is the head of the column of names, `others` are columns only of the table.
    """

    title: str
    note: str
    description: str
    head: str
    rows: Sequence[str]
    curves: Sequence[Curve]
    write: Callable[[float], str]
    options: dict[str, object]
    others: Sequence[tuple[str, Sequence[str]]] = ()
    wide: bool = False

    def html(self) -> str:
        drawn = plot(self.curves, "chart", f"{self.title}: {self.description}", **self.options)
        content = caption(self.title, self.note) + self._legend() + drawn + self._table()
        return tag("figure", content, class_="card wide" if self.wide else "card")

    def _legend(self) -> str:
        items = ""
        for curve in self.curves:
            most = max((value for value in curve.values if value is not None), default=None)
            shown = tag("b", self._written(most))
            items += tag("span", f"{colour_sample(curve.label)}{escape(curve.label)} {shown}")
        return tag("p", items + tag("span", "highest", class_="at"), class_="legend")

    def _table(self) -> str:
        columns = [(c.label, [self._written(value) for value in c.values]) for c in self.curves]
        columns += [(name, list(map(escape, cells))) for name, cells in self.others]
        names = [self.head, *(name for name, _ in columns)]
        head = "".join(tag("th", escape(name), scope="col") for name in names)
        lines = zip(self.rows, *(cells for _, cells in columns), strict=True)
        rows = (
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            for name, *cells in lines
        )
        body = tag("thead", tag("tr", head)) + tag("tbody", "".join(rows))
        inner = tag("div", tag("table", body), class_="scrolls", tabindex=0)
        return tag("details", tag("summary", "The numbers") + inner, class_="numbers")

    def _written(self, value: float | None) -> str:
        return NONE if value is None else escape(self.write(value))


def plot(curves: Sequence[Curve], class_: str, label: str | None = None, **options: object) -> str:
    """Return the place of a plot. Without `label` it is hidden from screen readers."""
    series = [
        {
            "colour": colour_of(curve.label),
            "dashed": curve.label in DASHED,
            "filled": curve.filled,
            "values": [_rounded(value) for value in curve.values],
        }
        for curve in curves
    ]
    data = json.dumps({**options, "series": series}, allow_nan=False, separators=(",", ":"))
    name = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return tag("div", class_=f"plot {class_}", data_chart=data, **name)


def caption(title: str, note: str) -> str:
    return tag("figcaption", tag("b", escape(title)) + tag("span", escape(note)))


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")
