"""The contents of SVG plots: lines and layers over time, bars, and small curves for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from beanstalkd_py.pipeline.report.axes import Axis, Tick
from beanstalkd_py.pipeline.report.data import Windows
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

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A value for each window; `colour` is a CSS class, `filled` fills down to 0."""

    label: str
    colour: str
    values: Sequence[float | None]
    filled: bool = False


def lines(frame: Frame, windows: Windows, curves: Sequence[Curve]) -> list[str]:
    """Draw curves through the middles of windows, with gaps for None."""
    begin = windows.begin.timestamp()
    parts = [axes(frame)]
    labels = []
    for curve in curves:
        pieces: list[Points] = [[]]
        for n, value in enumerate(curve.values):
            if value is not None:
                time = begin + (n + 0.5) * windows.window_s
                pieces[-1].append((frame.x(time), frame.y(value)))
            elif pieces[-1]:
                pieces.append([])
        pieces = [piece for piece in pieces if piece]
        if curve.filled:
            parts += [_area(piece, frame.bottom, curve.colour) for piece in pieces]
        parts.append(_line(pieces, curve.colour))
        if pieces:
            labels.append(EndLabel(curve.label, curve.colour, pieces[-1][-1][1]))
    return [*parts, end_labels(frame, labels)]


def layers(frame: Frame, windows: Windows, curves: Sequence[Curve]) -> list[str]:
    """Draw stacked values at the ends of windows, the first at the bottom."""
    begin = windows.begin.timestamp()
    parts, labels = [], []
    for curve, upper, lower in _stacked(
        curves, lambda n: frame.x(begin + n * windows.window_s), frame.y
    ):
        parts.append(_ring(upper, lower, f"layer {curve.colour}"))
        labels.append(EndLabel(curve.label, curve.colour, (upper[-1][1] + lower[-1][1]) / 2))
    # The grid is drawn above the layers, which would hide it.
    return [*parts, axes(frame), end_labels(frame, labels)]


def _stacked(
    curves: Sequence[Curve], x: Callable[[int], float], y: Callable[[float], float]
) -> Iterator[tuple[Curve, Points, Points]]:
    """Yield each curve with its upper and lower edge."""
    below = [0.0] * (len(curves[0].values) + 1 if curves else 0)
    for curve in curves:
        values = (value or 0.0 for value in (*curve.values[:1], *curve.values))
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper, lower = (
            [(x(n), y(value)) for n, value in enumerate(edge)] for edge in (above, below)
        )
        yield curve, upper, lower
        below = above


def _line(pieces: Sequence[Points], colour: str) -> str:
    long = "".join(_path(piece) for piece in pieces if len(piece) > 1)
    drawn = mark("path", class_=f"curve {colour}", d=long) if long else ""
    dots = [piece[0] for piece in pieces if len(piece) == 1]
    return drawn + "".join(
        mark("circle", class_=f"dot {colour}", cx=x, cy=y, r=2.5) for x, y in dots
    )


def _area(piece: Points, bottom: float, colour: str) -> str:
    base = [(piece[0][0], bottom), (piece[-1][0], bottom)]
    return _ring(piece, base, f"area {colour}") if len(piece) > 1 else ""


def _ring(upper: Points, lower: Points, class_: str) -> str:
    return mark("path", class_=class_, d=f"{_path(upper)}L{_path(lower[::-1])[1:]}Z")


def _path(points: Points) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar, the first part at the bottom, with a label and a tooltip."""

    text: str
    tooltip: str
    parts: tuple[tuple[str, float], ...]


def bars(key: str, title: str, size: Size, axis: Axis, shown: Sequence[Bar]) -> str:
    def across(most_ticks: int) -> Axis:
        each = -(-len(shown) // most_ticks)
        ticks = (Tick(n + 0.5, shown[n].text) for n in range(0, len(shown), each))
        return Axis(0, len(shown), tuple(ticks))

    frame = frame_of(size, axis, across)
    width = min((frame.right - frame.left) / len(shown) * 0.8, 44.0)
    parts = [axes(frame)]
    for n, bar in enumerate(shown):
        drawn, reached = tag("title", escape(bar.tooltip)), 0.0
        for colour, value in bar.parts:
            low, high = frame.y(reached), frame.y(reached + value)
            x = frame.x(n + 0.5) - width / 2
            drawn += mark("rect", class_=colour, x=x, y=high, width=width, height=low - high)
            reached += value
        parts.append(tag("g", drawn))
    return drawing(frame, key, title, "; ".join(bar.tooltip for bar in shown), parts)


def small_curve(values: Sequence[float], colour: str, width: float = 96, height: float = 22) -> str:
    """Draw a curve without axes for a table, from 0 to its maximum."""
    most = max(values, default=0) or 1
    step = width / max(len(values), 1)
    points = [
        ((n + 0.5) * step, height - 1.5 - v / most * (height - 3)) for n, v in enumerate(values)
    ]
    content = (_area(points, height, colour) + _line([points], colour)) if points else ""
    box = f"0 0 {number(width)} {number(height)}"
    return tag("svg", content, class_="small", viewBox=box, aria_hidden="true")


def small_layers(curves: Sequence[Curve], width: float = 250, height: float = 64) -> str:
    """Draw stacked values without axes, from 0 to their maximum."""
    columns = zip(*(curve.values for curve in curves), strict=True)
    totals = [sum(value or 0.0 for value in column) for column in columns]
    most = max(totals) or 1
    content = "".join(
        _ring(upper, lower, f"layer {curve.colour}")
        for curve, upper, lower in _stacked(
            curves, lambda n: width * n / len(totals), lambda value: height - value / most * height
        )
        if any(curve.values)
    )
    content += mark("line", class_="base", x1=0, x2=width, y1=height, y2=height)
    box = f"0 -2 {number(width)} {number(height + 4)}"
    return tag("svg", content, class_="small-layers", viewBox=box, aria_hidden="true")
