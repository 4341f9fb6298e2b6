"""The charts over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from beanstalkd_py.pipeline.report import numbers
from beanstalkd_py.pipeline.report.chart import Chart, Curve, caption
from beanstalkd_py.pipeline.report.data import STATES, Windows
from beanstalkd_py.pipeline.report.markup import escape, tag

_DECADES = 30
"""An axis is logarithmic if the largest value is more than so many times the smallest."""
ALWAYS_SHOWN = ("ready", "reserved", "delayed", "buried")
"""States in the chart; the others are shown if a job is in one of them."""
_UNITS = {"s": "second", "min": "minute", "h": "hour", "day": "day"}


def over_time(windows: Windows) -> str:
    charts = (
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
    return tag("div", "".join(charts), class_="charts")


def _chart(
    windows: Windows,
    title: str,
    note: str,
    curves: Sequence[Curve],
    write: Callable[[float], str],
    nothing: str,
    wide: bool = False,
    **options: object,
) -> str:
    """Return a chart, or the text `nothing` without data."""
    if not any(value for curve in curves for value in curve.values):
        content = caption(title, note) + tag("p", escape(nothing), class_="nothing")
        return tag("figure", content, class_="card wide" if wide else "card")
    times = [windows.begin + timedelta(seconds=n * windows.window_s) for n in range(len(windows))]
    is_whole = windows.window_s % 1 == 0
    rows = [f"{at:%d %b %H:%M:%S}" if is_whole else f"{at:%d %b %H:%M:%S.%f}"[:-3] for at in times]
    parts = [numbers.span(windows.begin, windows.end)]
    for curve in curves:
        known = [(value, n) for n, value in enumerate(curve.values) if value is not None]
        if known:
            most, n = max(known, key=lambda pair: (pair[0], -pair[1]))
            when = f", from {numbers.moment(times[n])} on" if most else ""
            parts.append(f"{curve.label}: at most {write(most)}{when}")
    options |= {"begin": windows.begin.timestamp(), "window": windows.window_s}
    return Chart(
        title, note, "; ".join(parts), "from (UTC)", rows, curves, write, options, wide=wide
    ).html()


def _per_unit(windows: Windows, curves: Sequence[Curve]) -> tuple[list[Curve], str]:
    """Convert counts to rates; return these and the unit of time.

    A window shorter than the unit has no rate. Its counts stay, and the unit is empty.
    """
    most = max((value or 0.0 for curve in curves for value in curve.values), default=0)
    unit, seconds = numbers.per_unit(most / windows.window_s)
    if seconds > windows.window_s:
        return list(curves), ""
    factor = seconds / windows.window_s
    rates = [
        replace(curve, values=tuple((value or 0.0) * factor for value in curve.values))
        for curve in curves
    ]
    return rates, unit


def _rate_note(windows: Windows, unit: str) -> str:
    each = numbers.duration(windows.window_s)
    return f"per {_UNITS[unit]}, mean of each window of {each}" if unit else f"in windows of {each}"


def _rate(unit: str) -> Callable[[float], str]:
    return lambda value: numbers.short_count(value) + (f"/{unit}" if unit else "")


def _rates(windows: Windows) -> str:
    counts = (Curve("put", windows.puts, filled=True), Curve("finished", windows.finished))
    curves, unit = _per_unit(windows, counts)
    return _chart(
        windows,
        title="Jobs put and finished",
        note=f"jobs {_rate_note(windows, unit)}",
        curves=curves,
        write=_rate(unit),
        nothing="No job was put or finished in this time.",
        wide=True,
        unit="rate" if unit else "count",
    )


def _depth(windows: Windows) -> str:
    return _chart(
        windows,
        title="Jobs by state",
        note="at the end of each window",
        curves=[
            Curve(state.replace("_", " "), getattr(windows, state))
            for state in STATES
            if state in ALWAYS_SHOWN or any(getattr(windows, state))
        ],
        write=lambda value: numbers.count(round(value)),
        nothing="There was no job at the end of any window.",
        unit="count",
        ends=True,
        stacked=True,
    )


def _buried(windows: Windows) -> str:
    return _chart(
        windows,
        title="Buried jobs",
        note="at the end of each window",
        curves=[Curve("buried", windows.buried, filled=True)],
        write=lambda value: numbers.count(round(value)),
        nothing="No job was buried at the end of any window.",
        unit="count",
        ends=True,
    )


def _percentiles(windows: Windows, what: str, title: str, note: str, nothing: str) -> str:
    curves = [Curve(f"p{p}", getattr(windows, f"{what}_p{p}_s")) for p in (99, 90, 50)]
    known = [value for curve in curves for value in curve.values if value is not None and value > 0]
    logarithmic = max(known, default=0) > _DECADES * min(known, default=0)
    unknown = sum(getattr(windows, f"{what}_unknown"))
    if unknown:
        note += f"; unknown for {numbers.plural(unknown, 'job')}"
        nothing = f"The times of {numbers.plural(unknown, 'job')} are unknown."
    return _chart(
        windows,
        title=title,
        note=f"{note}{'; logarithmic' if logarithmic else ''}",
        curves=curves,
        write=numbers.duration,
        nothing=nothing,
        unit="duration",
        logarithmic=logarithmic,
    )


def _mishaps(windows: Windows) -> str:
    counts = (
        Curve("timeouts", windows.timeouts),
        Curve("releases", windows.releases),
        Curve("buries", windows.buries),
        Curve("kicks", windows.kicks),
    )
    curves, unit = _per_unit(windows, counts)
    return _chart(
        windows,
        title="Timeouts, releases, buries, kicks",
        note=_rate_note(windows, unit),
        curves=[curve for curve in curves if any(curve.values)],
        write=_rate(unit),
        nothing="No timeout, release, bury or kick in this time.",
        unit="rate" if unit else "count",
    )


def _put_bytes(windows: Windows) -> str:
    is_short = windows.window_s < 1
    length = 1.0 if is_short else windows.window_s
    return _chart(
        windows,
        title="Bodies put",
        note=f"bytes {_rate_note(windows, '' if is_short else 's')}",
        curves=[Curve("bodies", [value / length for value in windows.put_bytes], filled=True)],
        write=lambda value: f"{numbers.size(value)}{'' if is_short else '/s'}",
        nothing="No bytes were put in this time.",
        unit="size",
    )
