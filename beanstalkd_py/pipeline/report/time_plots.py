"""The figures over time. Each has its numbers in a table for screen readers and the tooltip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from beanstalkd_py.pipeline.report import axes, numbers
from beanstalkd_py.pipeline.report.data import STATES, Times, Windows, spans_decades
from beanstalkd_py.pipeline.report.frame import Size
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.plots import Curve, Plot, layers, lines

# The style shows the widest that fits.
WIDE = (Size("full", 1104, 280), Size("middle", 700, 250), Size("narrow", 350, 210))
HALF = (Size("half", 540, 230), Size("narrow", 350, 210))

Draw = Callable[[Plot, Size, Sequence[Curve]], str]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with a table of its numbers, or the text `nothing` without data."""

    key: str
    title: str
    note: str
    windows: Windows
    curves: tuple[Curve, ...]
    axis: axes.Axis
    write: axes.Write
    nothing: str
    draw: Draw = lines
    sizes: tuple[Size, ...] = HALF

    def html(self) -> str:
        head = tag("figcaption", tag("b", escape(self.title)) + tag("span", escape(self.note)))
        wide = " wide" if self.sizes is WIDE else ""
        if not any(value for curve in self.curves for value in curve.values):
            empty = tag("p", escape(self.nothing), class_="nothing")
            return tag("figure", head + empty, class_=f"over-time{wide}")
        plot = Plot(
            self.key,
            self.title,
            self._description(),
            self.windows.begin,
            self.windows.window_s,
            len(self.windows),
            self.axis,
        )
        drawn = "".join(self.draw(plot, size, self.curves) for size in self.sizes)
        return tag("figure", head + drawn + self._numbers(), class_=f"over-time{wide}")

    def _description(self) -> str:
        windows = self.windows
        parts = [numbers.span(windows.begin, windows.end)]
        for curve in self.curves:
            known = [(value, n) for n, value in enumerate(curve.values) if value is not None]
            if known:
                most, n = max(known, key=lambda pair: (pair[0], -pair[1]))
                at = windows.begin + timedelta(seconds=n * windows.window_s)
                when = f", from {numbers.moment(at)} on" if most else ""
                parts.append(f"{curve.label}: at most {self.write(most)}{when}")
        return "; ".join(parts)

    def _numbers(self) -> str:
        head = tag("th", "from (UTC)", scope="col")
        head += "".join(
            tag("th", c.label, class_=f"n {c.colour}", scope="col") for c in self.curves
        )
        rows = []
        for n in range(len(self.windows)):
            at = self.windows.begin + timedelta(seconds=n * self.windows.window_s)
            values = (curve.values[n] for curve in self.curves)
            cells = "".join(
                f"<td>{numbers.NONE if v is None else escape(self.write(v))}</td>" for v in values
            )
            rows.append(f"<tr><th>{_time(at, self.windows.window_s)}</th>{cells}</tr>")
        body = tag("thead", tag("tr", head)) + tag("tbody", "".join(rows))
        name = tag("summary", "The numbers")
        inner = tag("div", tag("table", body), class_="scrolls", tabindex=0)
        return tag("details", name + inner, class_="numbers")


def _time(at: object, window_s: float) -> str:
    text = f"{at:%d %b %H:%M:%S.%f}" if window_s % 1 else f"{at:%d %b %H:%M:%S}"
    return text[:-3] if window_s % 1 else text


def over_time(windows: Windows) -> str:
    figures = (
        _rates(windows),
        _depth(windows),
        _buried(windows),
        _waiting(windows),
        _finishing(windows),
        _mishaps(windows),
        _put_bytes(windows),
    )
    return tag("div", "".join(figure.html() for figure in figures), class_="figures")


def _per_window(
    windows: Windows, named: Iterable[tuple[str, str, Sequence[int]]]
) -> tuple[tuple[Curve, ...], float, str]:
    named = list(named)
    most = max((max(values, default=0) for _, _, values in named), default=0)
    unit, seconds = numbers.per_unit(most / windows.window_s)
    factor = seconds / windows.window_s
    curves = tuple(Curve(n, c, tuple(v * factor for v in values)) for n, c, values in named)
    return curves, most * factor, unit


def _rates(windows: Windows) -> Figure:
    named = (("put", "c-put", windows.puts), ("finished", "c-done", windows.finished))
    (puts, finished), most, unit = _per_window(windows, named)
    puts = Curve(puts.label, puts.colour, puts.values, filled=True)
    return Figure(
        key="rates",
        title="Jobs put and finished",
        note=f"jobs per {_long(unit)}, mean of each window of {numbers.duration(windows.window_s)}",
        windows=windows,
        curves=(puts, finished),
        axis=axes.linear(most, numbers.short_count),
        write=lambda value: f"{numbers.short_count(value)}/{unit}",
        nothing="No job was put or finished in this time.",
        sizes=WIDE,
    )


def _depth(windows: Windows) -> Figure:
    return Figure(
        key="depth",
        title="Jobs by state",
        note="at the end of each window",
        windows=windows,
        curves=tuple(Curve(s, f"c-{s}", getattr(windows, s)) for s in STATES),
        axis=axes.linear(max(windows.depth, default=0), numbers.short_count, whole=True),
        write=lambda value: numbers.count(round(value)),
        nothing="There was no job at the end of any window.",
        draw=layers,
    )


def _buried(windows: Windows) -> Figure:
    return Figure(
        key="buried",
        title="Buried jobs",
        note="at the end of each window",
        windows=windows,
        curves=(Curve("buried", "c-buried", windows.buried, filled=True),),
        axis=axes.linear(max(windows.buried, default=0), numbers.short_count, whole=True),
        write=lambda value: numbers.count(round(value)),
        nothing="No job was buried at the end of any window.",
    )


def _waiting(windows: Windows) -> Figure:
    return _percentiles(
        windows,
        "wait",
        "Waiting for a worker",
        "from the put to the first reserve, of jobs first reserved in the window",
        "No job is known to have been reserved in this time.",
    )


def _finishing(windows: Windows) -> Figure:
    return _percentiles(
        windows,
        "finish",
        "Time to finish",
        "from the put to the end, of jobs that ended in the window",
        "No job ended in this time.",
    )


def _percentiles(windows: Windows, what: str, title: str, note: str, nothing: str) -> Figure:
    curves = tuple(
        Curve(f"p{p}", f"c-p{p}", getattr(windows, f"{what}_p{p}_s")) for p in (99, 90, 50)
    )
    together: Times = tuple(value for curve in curves for value in curve.values)
    known = [value for value in together if value is not None and value > 0]
    logarithmic = spans_decades(together)
    return Figure(
        key=what,
        title=title,
        note=f"{note}{'; logarithmic' if logarithmic else ''}",
        windows=windows,
        curves=curves,
        axis=axes.of_durations(min(known, default=0), max(known, default=0), logarithmic),
        write=numbers.duration,
        nothing=nothing,
    )


def _mishaps(windows: Windows) -> Figure:
    named = (
        ("timeouts", "c-timeouts", windows.timeouts),
        ("releases", "c-releases", windows.releases),
        ("buries", "c-buried", windows.buries),
        ("kicks", "c-kicks", windows.kicks),
    )
    curves, most, unit = _per_window(windows, named)
    return Figure(
        key="mishaps",
        title="Timeouts, releases, buries, kicks",
        note=f"per {_long(unit)}, mean of each window",
        windows=windows,
        curves=tuple(curve for curve in curves if any(curve.values)),
        axis=axes.linear(most, numbers.short_count),
        write=lambda value: f"{numbers.short_count(value)}/{unit}",
        nothing="No timeout, release, bury or kick in this time.",
    )


def _put_bytes(windows: Windows) -> Figure:
    values = tuple(value / windows.window_s for value in windows.put_bytes)
    return Figure(
        key="bytes",
        title="Bodies put",
        note="bytes per second, mean of each window",
        windows=windows,
        curves=(Curve("bodies", "c-put", values, filled=True),),
        axis=axes.of_sizes(max(values, default=0)),
        write=lambda value: f"{numbers.size(value)}/s",
        nothing="No bytes were put in this time.",
    )


def _long(unit: str) -> str:
    return {"s": "second", "min": "minute", "h": "hour"}.get(unit, unit)
