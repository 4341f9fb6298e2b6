"""SVG plots: lines and layers over time, columns, and small curves for tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from beanstalkd_py.pipeline.report.axes import Axis, middle_times
from beanstalkd_py.pipeline.report.frame import (
    EndLabel,
    Frame,
    Size,
    axes,
    drawing,
    end_labels,
    frame_of,
)
from beanstalkd_py.pipeline.report.markup import escape, mark, number, tag

Values = Sequence[float | None]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A value for each window; `colour` is a CSS class, `filled` fills down to 0."""

    label: str
    colour: str
    values: Values
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot over time; `description` is for screen readers."""

    key: str
    title: str
    description: str
    begin: datetime
    window_s: float
    windows: int
    axis: Axis

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(seconds=self.window_s * self.windows)


def lines(plot: Plot, size: Size, curves: Sequence[Curve]) -> str:
    """Draw curves through the middles of windows, with gaps for None."""
    frame = frame_of(size, plot.begin, plot.end, plot.axis, [curve.label for curve in curves])
    times = middle_times(plot.begin, plot.window_s, plot.windows)
    parts = [axes(frame)]
    labels = []
    for curve in curves:
        pieces = _pieces(frame, times, curve.values)
        if curve.filled:
            parts += [_area(piece, frame.bottom, curve.colour) for piece in pieces]
        parts.append(_curve(pieces, curve.colour))
        if pieces:
            labels.append(EndLabel(curve.label, curve.colour, pieces[-1][-1][1]))
    parts.append(end_labels(frame, labels))
    return _drawn(plot, size, frame, parts)


def layers(plot: Plot, size: Size, curves: Sequence[Curve]) -> str:
    """Draw stacked values at the ends of windows, the first at the bottom."""
    shown = [curve for curve in curves if any(curve.values)]
    frame = frame_of(size, plot.begin, plot.end, plot.axis, [curve.label for curve in shown])
    begin = plot.begin.timestamp()
    times = [begin + n * plot.window_s for n in range(plot.windows + 1)]
    below = [0.0] * len(times)
    parts, labels = [], []
    for curve in shown:
        values = [value or 0.0 for value in (*curve.values[:1], *curve.values)]
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper = [(frame.x(t), frame.y(v)) for t, v in zip(times, above, strict=True)]
        lower = [(frame.x(t), frame.y(v)) for t, v in zip(times, below, strict=True)]
        ring = f"{_path(upper)}L{_path(lower[::-1])[1:]}Z"
        parts.append(mark("path", class_=f"layer {curve.colour}", d=ring))
        labels.append(EndLabel(curve.label, curve.colour, (upper[-1][1] + lower[-1][1]) / 2))
        below = above
    # The grid is drawn above the layers, which would hide it.
    parts += [axes(frame), end_labels(frame, labels)]
    return _drawn(plot, size, frame, parts)


def _drawn(plot: Plot, size: Size, frame: Frame, parts: list[str]) -> str:
    data = {"data_left": frame.left, "data_right": frame.right, "data_rows": plot.windows}
    return drawing(size, plot.key, plot.title, plot.description, "".join(parts), **data)


def _pieces(frame: Frame, times: list[float], values: Values) -> list[Points]:
    pieces: list[Points] = [[]]
    for time, value in zip(times, values, strict=True):
        if value is not None:
            pieces[-1].append((frame.x(time), frame.y(value)))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _curve(pieces: list[Points], colour: str) -> str:
    long = "".join(_path(piece) for piece in pieces if len(piece) > 1)
    drawn = mark("path", class_=f"curve {colour}", d=long) if long else ""
    dots = [piece[0] for piece in pieces if len(piece) == 1]
    return drawn + "".join(
        mark("circle", class_=f"dot {colour}", cx=x, cy=y, r=2.5) for x, y in dots
    )


def _area(piece: Points, bottom: float, colour: str) -> str:
    if len(piece) < 2:
        return ""
    first, last = number(piece[0][0]), number(piece[-1][0])
    d = f"{_path(piece)}L{last} {number(bottom)}L{first} {number(bottom)}Z"
    return mark("path", class_=f"area {colour}", d=d)


def _path(points: Points) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


@dataclass(frozen=True, slots=True)
class Column:
    """A stacked column, the first part at the bottom, with a label and a tooltip."""

    text: str
    tooltip: str
    parts: tuple[tuple[str, float], ...]


def columns(key: str, title: str, size: Size, axis: Axis, shown: Sequence[Column]) -> str:
    now = datetime.fromtimestamp(0)  # this plot has no clock
    frame = frame_of(size, now, now, axis, ())
    parts = []
    step = (frame.right - frame.left) / max(len(shown), 1)
    width = min(step * 0.8, 44.0)
    each = max(1, -(-len(shown) * 58 // int(frame.right - frame.left)))
    for tick in axis.ticks:
        y = frame.y(tick.value)
        line = "base" if tick.value == axis.low else "grid"
        parts.append(mark("line", class_=line, x1=frame.left, x2=frame.right, y1=y, y2=y))
        parts.append(tag("text", escape(tick.text), x=frame.left - 7, y=y + 4, text_anchor="end"))
    for n, column in enumerate(shown):
        middle = frame.left + (n + 0.5) * step
        parts.append(_column(frame, column, middle - width / 2, width))
        if n % each == 0:
            below = tag(
                "text", escape(column.text), x=middle, y=frame.bottom + 16, text_anchor="middle"
            )
            parts.append(below)
    return drawing(size, key, title, "; ".join(c.tooltip for c in shown), "".join(parts))


def _column(frame: Frame, column: Column, x: float, width: float) -> str:
    drawn, reached = tag("title", escape(column.tooltip)), 0.0
    for colour, value in column.parts:
        low, high = frame.y(reached), frame.y(reached + value)
        drawn += mark("rect", class_=colour, x=x, y=high, width=width, height=low - high)
        reached += value
    return tag("g", drawn)


def small_curve(values: Sequence[float], colour: str, width: float = 96, height: float = 22) -> str:
    """Draw a curve without axes for a table, from 0 to its maximum."""
    most = max(values, default=0) or 1
    step = width / max(len(values), 1)
    points = [
        ((n + 0.5) * step, height - 1.5 - v / most * (height - 3)) for n, v in enumerate(values)
    ]
    if len(points) < 2:
        content = "".join(
            mark("circle", class_=f"dot {colour}", cx=x, cy=y, r=2.5) for x, y in points
        )
    else:
        content = _area(points, height, colour) + _curve([points], colour)
    box = f"0 0 {number(width)} {number(height)}"
    return tag("svg", content, class_="small", viewBox=box, aria_hidden="true")


def small_layers(
    windows: int, curves: Sequence[Curve], width: float = 250, height: float = 64
) -> str:
    """Draw stacked values without axes, from 0 to their maximum."""
    most = max(
        (sum(column) for column in zip(*(_known(c.values) for c in curves), strict=True)),
        default=0,
    )
    xs = [width * n / max(windows, 1) for n in range(windows + 1)]
    below = [0.0] * len(xs)
    content = ""
    for curve in curves:
        values = _known((*curve.values[:1], *curve.values))
        above = [low + value for low, value in zip(below, values, strict=True)]
        if any(curve.values):
            upper = [(x, height - v / most * height) for x, v in zip(xs, above, strict=True)]
            lower = [(x, height - v / most * height) for x, v in zip(xs, below, strict=True)]
            ring = f"{_path(upper)}L{_path(lower[::-1])[1:]}Z"
            content += mark("path", class_=f"layer {curve.colour}", d=ring)
        below = above
    content += mark("line", class_="base", x1=0, x2=width, y1=height, y2=height)
    box = f"0 -2 {number(width)} {number(height + 4)}"
    return tag("svg", content, class_="small-layers", viewBox=box, aria_hidden="true")


def _known(values: Values) -> list[float]:
    return [value or 0.0 for value in values]
