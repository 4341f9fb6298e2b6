"""The frame of a plot: area, grid, axes, and labels at the right ends of curves.

Sizes are in units of the SVG's view box. Colours are CSS classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from beanstalkd_py.pipeline.report.axes import Axis
from beanstalkd_py.pipeline.report.markup import escape, mark, number, tag

# Width in the widest of the usual fonts.
_CHARACTER = 6.9
_LABEL_APART = 13.5
_LINE = 13.0
_TOP, _BOTTOM = 10.0, 34.0


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one variant of a figure; `name` is its CSS class."""

    name: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class EndLabel:
    """A label at the right end of a curve; `at` is the y of that end."""

    text: str
    colour: str
    at: float


@dataclass(frozen=True, slots=True)
class Frame:
    """The area of a plot between `left` and `right`, with a vertical and a horizontal axis."""

    size: Size
    left: float
    right: float
    axis: Axis
    across: Axis

    @property
    def top(self) -> float:
        return _TOP

    @property
    def bottom(self) -> float:
        return self.size.height - _BOTTOM

    def x(self, value: float) -> float:
        return self.left + self.across.place(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.axis.place(value) * (self.bottom - self.top)


def frame_of(
    size: Size, axis: Axis, across: Callable[[int], Axis], labels: Sequence[str] = ()
) -> Frame:
    """Return a frame with space for `labels` at its right; `across` gets the number of ticks."""
    left = 10 + _CHARACTER * max(len(tick.text) for tick in axis.ticks)
    right = size.width - max((_CHARACTER * len(label) + 20 for label in labels), default=12)
    return Frame(size, left, right, axis, across(max(2, int((right - left) / 72))))


def axes(frame: Frame) -> str:
    parts = []
    for tick in frame.axis.ticks:
        y = frame.y(tick.value)
        if tick.value > frame.axis.low or frame.axis.logarithmic:
            parts.append(mark("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y))
        parts.append(_text(tick.text, frame.left - 7, y + 4, "end"))
    y = frame.bottom
    for tick in frame.across.ticks:
        x = frame.x(tick.value)
        parts.append(mark("line", class_="base", x1=x, x2=x, y1=y, y2=y + 4))
        # Keep the text of a tick at the edge inside the figure.
        half = _CHARACTER * max(len(tick.text), 1.1 * len(tick.second)) / 2 + 1
        x = min(max(x, half), frame.size.width - half)
        parts.append(_text(tick.text, x, y + 16, "middle"))
        if tick.second:
            parts.append(_text(tick.second, x, y + 16 + _LINE, "middle", "second"))
    parts.append(mark("line", class_="base", x1=frame.left, x2=frame.right, y1=y, y2=y))
    return "".join(parts)


def end_labels(frame: Frame, labels: Sequence[EndLabel]) -> str:
    ordered = sorted(labels, key=lambda label: label.at)
    ys = _apart([label.at for label in ordered], frame.top + 2, frame.bottom)
    parts = []
    for label, y in zip(ordered, ys, strict=True):
        x = frame.right
        path = f"M{number(x + 2)} {number(label.at)}L{number(x + 12)} {number(y)}"
        parts.append(mark("path", class_=f"lead {label.colour}", d=path))
        parts.append(_text(label.text, x + 15, y + 4, "start", "label"))
    return "".join(parts)


def _apart(wanted: list[float], low: float, high: float) -> list[float]:
    """Move sorted values apart as little as possible, within limits."""
    ys: list[float] = []
    for value in wanted:
        ys.append(max(value, low, ys[-1] + _LABEL_APART if ys else low))
    limit = high
    for n in range(len(ys) - 1, -1, -1):
        ys[n] = min(ys[n], limit)
        limit = ys[n] - _LABEL_APART
    return ys


def _text(text: str, x: float, y: float, anchor: str, class_: str | None = None) -> str:
    return tag("text", escape(text), class_=class_, x=x, y=y, text_anchor=anchor)


def drawing(frame: Frame, key: str, title: str, description: str, parts: Sequence[str]) -> str:
    """Return the SVG; `description` is for screen readers."""
    size = frame.size
    id_prefix = f"{key}-{size.name}"
    head = tag("title", escape(title), id=f"{id_prefix}-t")
    head += tag("desc", escape(description), id=f"{id_prefix}-d")
    return tag(
        "svg",
        head + "".join(parts),
        class_=f"plot {size.name}",
        viewBox=f"0 0 {number(size.width)} {number(size.height)}",
        role="img",
        aria_labelledby=f"{id_prefix}-t {id_prefix}-d",
        data_left=frame.left,
        data_right=frame.right,
    )
