"""The section about the tubes with most jobs."""

from __future__ import annotations

from beanstalkd_py.pipeline.report import numbers
from beanstalkd_py.pipeline.report.chart import Curve, plot
from beanstalkd_py.pipeline.report.data import STATES, ReportData, Tube
from beanstalkd_py.pipeline.report.markup import Column, colour_key, escape, table, tag, tube_cell
from beanstalkd_py.pipeline.report.numbers import count, duration, plural, share

MOST_MULTIPLES = 12
_POINTS = 120


def tubes(data: ReportData) -> str:
    if not data.tubes:
        return ""
    title = tag("h2", "Tubes")
    text = "Those with most jobs first." if len(data.tubes) > 1 else ""
    columns = (
        Column[Tube]("tube", lambda t: tube_cell(t.name, t.host, data.many_hosts), None),
        Column[Tube]("puts over time", _puts, "drawn"),
        Column[Tube]("put", lambda t: count(sum(t.windows.puts))),
        Column[Tube]("finished", lambda t: count(sum(t.windows.finished))),
        Column[Tube]("there", lambda t: numbers.between(*t.windows.left)),
        Column[Tube]("buried", lambda t: _bad(t.windows.buried[-1])),
        Column[Tube]("timeouts", lambda t: _bad(sum(t.windows.timeouts))),
        Column[Tube]("wait p50", lambda t: duration(t.wait.p50_s)),
        Column[Tube]("wait p99", lambda t: duration(t.wait.p99_s)),
        Column[Tube]("finish p50", lambda t: duration(t.finish.p50_s)),
        Column[Tube]("finish p99", lambda t: duration(t.finish.p99_s)),
    )
    shown = table("Tubes with most jobs", columns, data.tubes, _more(data))
    return tag("section", title + tag("p", text) + shown + _multiples(data))


def _puts(tube: Tube) -> str:
    values = [sum(group) / len(group) for group in _groups(tube.windows.puts)]
    return plot([Curve("put", values, filled=True)], "spark", small=True)


def _bad(number: int) -> str:
    return tag("span", count(number), class_="bad" if number else "none")


def _more(data: ReportData) -> str:
    if not data.more_tubes:
        return ""
    puts = sum(data.windows.puts) if data.windows else 0
    part = f", {share(data.more_puts, puts)} of all" if puts else ""
    tubes = plural(data.more_tubes, "more tube")
    return escape(f"and {tubes} with {plural(data.more_puts, 'job')} put{part}")


def _multiples(data: ReportData) -> str:
    shown = [tube for tube in data.tubes[:MOST_MULTIPLES] if any(tube.windows.most_depth)]
    if len(shown) < 2:
        return ""
    title = tag("h3", "Jobs that were there, tube by tube")
    title += tag("p", colour_key(state.replace("_", " ") for state in STATES), class_="legend")
    each = "".join(_multiple(tube, data.many_hosts) for tube in shown)
    return title + tag("div", each, class_="multiples")


def _multiple(tube: Tube, many_hosts: bool) -> str:
    windows = tube.windows
    curves = [
        Curve(state.replace("_", " "), [group[-1] for group in _groups(getattr(windows, state))])
        for state in STATES
        if any(getattr(windows, state))
    ]
    most = numbers.short_count(max(windows.most_depth))
    left = numbers.between(*windows.left, numbers.short_count)
    text = f"at most {most}, {left} in the end"
    head = tag("figcaption", tube_cell(tube.name, tube.host, many_hosts) + tag("span", text))
    drawn = plot(curves, "layers", small=True, stacked=True, ends=True, begin=0, window=1)
    return tag("figure", head + drawn, class_="multiple")


def _groups(values: tuple[int, ...]) -> list[tuple[int, ...]]:
    each = max(1, -(-len(values) // _POINTS))
    return [values[n : n + each] for n in range(0, len(values), each)]
