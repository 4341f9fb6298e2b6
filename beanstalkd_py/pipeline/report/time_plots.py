"""The figures over time. Each has its numbers in a table for screen readers and the tooltip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from beanstalkd_py.pipeline.report import axes, numbers
from beanstalkd_py.pipeline.report.data import STATES, Windows
from beanstalkd_py.pipeline.report.frame import Frame, Size, drawing, frame_of
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.plots import Curve, layers, lines

# The style shows the widest that fits.
WIDE = (Size("full", 1104, 280), Size("middle", 700, 250), Size("narrow", 350, 210))
HALF = (Size("half", 540, 230), Size("narrow", 350, 210))
_DECADES = 30
"""An axis is logarithmic if the largest value is more than so many times the smallest."""
ALWAYS_SHOWN = ("ready", "reserved", "delayed", "buried")
"""States in the table of numbers; the others are shown if a job is in one of them."""
_UNITS = {"s": "second", "min": "minute", "h": "hour", "day": "day"}


@dataclass(frozen=True, slots=True)
class Figure:
    """Curves with a table of their numbers, or the text `nothing` without data."""

    key: str
    title: str
    note: str
    curves: tuple[Curve, ...]
    axis: axes.Axis
    write: Callable[[float], str]
    nothing: str
    draw: Callable[[Frame, Windows, Sequence[Curve]], list[str]] = lines
    sizes: tuple[Size, ...] = HALF

    def html(self, windows: Windows) -> str:
        content = tag("figcaption", tag("b", escape(self.title)) + tag("span", escape(self.note)))
        if any(value for curve in self.curves for value in curve.values):
            content += "".join(self._drawn(windows, size) for size in self.sizes)
            content += self._numbers(windows)
        else:
            content += tag("p", escape(self.nothing), class_="nothing")
        return tag("figure", content, class_=f"over-time{' wide' if self.sizes is WIDE else ''}")

    def _drawn(self, windows: Windows, size: Size) -> str:
        shown = self.curves
        if self.draw is layers:
            shown = tuple(curve for curve in shown if any(curve.values))
        frame = frame_of(
            size,
            self.axis,
            lambda most_ticks: axes.of_clock(windows.begin, windows.end, most_ticks),
            [curve.label for curve in shown],
        )
        parts = self.draw(frame, windows, shown)
        return drawing(frame, self.key, self.title, self._description(windows), parts)

    def _description(self, windows: Windows) -> str:
        parts = [numbers.span(windows.begin, windows.end)]
        for curve in self.curves:
            known = [(value, n) for n, value in enumerate(curve.values) if value is not None]
            if known:
                most, n = max(known, key=lambda pair: (pair[0], -pair[1]))
                at = windows.begin + timedelta(seconds=n * windows.window_s)
                when = f", from {numbers.moment(at)} on" if most else ""
                parts.append(f"{curve.label}: at most {self.write(most)}{when}")
        return "; ".join(parts)

    def _numbers(self, windows: Windows) -> str:
        head = tag("th", "from (UTC)", scope="col")
        head += "".join(
            tag("th", c.label, class_=f"n {c.colour}", scope="col") for c in self.curves
        )
        rows = []
        for n in range(len(windows)):
            at = windows.begin + timedelta(seconds=n * windows.window_s)
            is_whole = windows.window_s % 1 == 0
            time = f"{at:%d %b %H:%M:%S}" if is_whole else f"{at:%d %b %H:%M:%S.%f}"[:-3]
            values = (curve.values[n] for curve in self.curves)
            cells = "".join(
                f"<td>{numbers.NONE if v is None else escape(self.write(v))}</td>" for v in values
            )
            rows.append(f"<tr><th>{time}</th>{cells}</tr>")
        body = tag("thead", tag("tr", head)) + tag("tbody", "".join(rows))
        inner = tag("div", tag("table", body), class_="scrolls", tabindex=0)
        return tag("details", tag("summary", "The numbers") + inner, class_="numbers")


def over_time(windows: Windows) -> str:
    figures = (
        _rates(windows),
        _depth(windows),
        _buried(windows),
        _percentiles(
            windows,
            "wait",
            "Waiting for a worker",
            "from the put to the first reserve, of jobs first reserved in the window",
            "No job is known to have been reserved in this time.",
        ),
        _percentiles(
            windows,
            "finish",
            "Time to finish",
            "from the put to the end, of jobs that ended in the window",
            "No job ended in this time.",
        ),
        _mishaps(windows),
        _put_bytes(windows),
    )
    return tag("div", "".join(figure.html(windows) for figure in figures), class_="figures")


def _per_unit(windows: Windows, curves: Sequence[Curve]) -> tuple[list[Curve], axes.Axis, str]:
    """Convert counts to rates; return these, their axis and the unit of time.

    A window shorter than the unit has no rate. Its counts stay, and the unit is empty.
    """
    most = max((value or 0.0 for curve in curves for value in curve.values), default=0)
    unit, seconds = numbers.per_unit(most / windows.window_s)
    is_short = seconds > windows.window_s
    factor = 1.0 if is_short else seconds / windows.window_s
    rates = [
        replace(curve, values=tuple((value or 0.0) * factor for value in curve.values))
        for curve in curves
    ]
    axis = axes.linear(most * factor, numbers.short_count, whole=is_short)
    return rates, axis, "" if is_short else unit


def _rate_note(windows: Windows, unit: str) -> str:
    each = numbers.duration(windows.window_s)
    return f"per {_UNITS[unit]}, mean of each window of {each}" if unit else f"in windows of {each}"


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: numbers.short_count(value) + (f"/{unit}" if unit else "")


def _rates(windows: Windows) -> Figure:
    counts = (
        Curve("put", "c-put", windows.puts, filled=True),
        Curve("finished", "c-done", windows.finished),
    )
    curves, axis, unit = _per_unit(windows, counts)
    return Figure(
        key="rates",
        title="Jobs put and finished",
        note=f"jobs {_rate_note(windows, unit)}",
        curves=tuple(curves),
        axis=axis,
        write=_rate(unit),
        nothing="No job was put or finished in this time.",
        sizes=WIDE,
    )


def _depth(windows: Windows) -> Figure:
    return Figure(
        key="depth",
        title="Jobs by state",
        note="at the end of each window",
        curves=tuple(
            Curve(s.replace("_", " "), f"c-{s}", getattr(windows, s))
            for s in STATES
            if s in ALWAYS_SHOWN or any(getattr(windows, s))
        ),
        axis=axes.linear(max(windows.most_depth, default=0), numbers.short_count, whole=True),
        write=lambda value: numbers.count(round(value)),
        nothing="There was no job at the end of any window.",
        draw=layers,
    )


def _buried(windows: Windows) -> Figure:
    return Figure(
        key="buried",
        title="Buried jobs",
        note="at the end of each window",
        curves=(Curve("buried", "c-buried", windows.buried, filled=True),),
        axis=axes.linear(max(windows.buried, default=0), numbers.short_count, whole=True),
        write=lambda value: numbers.count(round(value)),
        nothing="No job was buried at the end of any window.",
    )


def _percentiles(windows: Windows, what: str, title: str, note: str, nothing: str) -> Figure:
    curves = tuple(
        Curve(f"p{p}", f"c-p{p}", getattr(windows, f"{what}_p{p}_s")) for p in (99, 90, 50)
    )
    known = [value for curve in curves for value in curve.values if value is not None and value > 0]
    least, most = min(known, default=0), max(known, default=0)
    logarithmic = most > _DECADES * least
    unknown = sum(getattr(windows, f"{what}_unknown"))
    if unknown:
        note += f"; unknown for {numbers.plural(unknown, 'job')}"
        nothing = f"The times of {numbers.plural(unknown, 'job')} are unknown."
    return Figure(
        key=what,
        title=title,
        note=f"{note}{'; logarithmic' if logarithmic else ''}",
        curves=curves,
        axis=axes.of_durations(least, most, logarithmic),
        write=numbers.duration,
        nothing=nothing,
    )


def _mishaps(windows: Windows) -> Figure:
    counts = (
        Curve("timeouts", "c-timeouts", windows.timeouts),
        Curve("releases", "c-releases", windows.releases),
        Curve("buries", "c-buried", windows.buries),
        Curve("kicks", "c-kicks", windows.kicks),
    )
    curves, axis, unit = _per_unit(windows, counts)
    return Figure(
        key="mishaps",
        title="Timeouts, releases, buries, kicks",
        note=_rate_note(windows, unit),
        curves=tuple(curve for curve in curves if any(curve.values)),
        axis=axis,
        write=_rate(unit),
        nothing="No timeout, release, bury or kick in this time.",
    )


def _put_bytes(windows: Windows) -> Figure:
    is_short = windows.window_s < 1
    length = 1.0 if is_short else windows.window_s
    values = tuple(value / length for value in windows.put_bytes)
    return Figure(
        key="bytes",
        title="Bodies put",
        note=f"bytes {_rate_note(windows, '' if is_short else 's')}",
        curves=(Curve("bodies", "c-put", values, filled=True),),
        axis=axes.of_sizes(max(values, default=0)),
        write=lambda value: f"{numbers.size(value)}{'' if is_short else '/s'}",
        nothing="No bytes were put in this time.",
    )
