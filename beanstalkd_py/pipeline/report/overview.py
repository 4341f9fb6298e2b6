"""The head of the report: inputs, span, certainty of times, and key figures."""

from __future__ import annotations

from beanstalkd_py.pipeline.report import numbers
from beanstalkd_py.pipeline.report.data import ENDS, STATES, Percentiles, ReportData, Windows
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.numbers import NONE, count, duration, plural, share

_MOST_INPUTS = 8
_KINDS = {"binlog": "binlog", "history": "history store"}


def head(data: ReportData) -> str:
    over = f"beanstalkd report, made {numbers.moment(data.made_at)} UTC"
    title = tag("p", escape(over), class_="over") + tag("h1", escape(_title(data.windows)))
    return tag("header", title + tag("p", escape(_sentence(data)), class_="lede") + _facts(data))


def _title(windows: Windows | None) -> str:
    return numbers.span(windows.begin, windows.end) if windows else "No events"


def _sentence(data: ReportData) -> str:
    windows = data.windows
    if windows is None:
        return "The inputs have no job, or none in the requested time."
    puts, finished = sum(windows.puts), sum(windows.finished)
    span = duration(windows.window_s * len(windows))
    text = f"{plural(puts, 'job was', 'jobs were')} put in {span} and {count(finished)} finished."
    (least, most), buried = windows.left, windows.buried[-1]
    if data.earlier:
        text += f" {plural(data.earlier, 'job had', 'jobs had')} been put earlier."
    if not most:
        return f"{text} None is left."
    verb = "is" if most == 1 else "are"
    ends = f", {count(buried)} of them buried" if buried else ""
    if not buried and least == most:
        ends = ", none of them buried"
    return f"{text} In the end {numbers.between(least, most)} {verb} there{ends}."


def _facts(data: ReportData) -> str:
    inputs = "".join(_input(each.path, each.kind) for each in data.inputs[:_MOST_INPUTS])
    more = len(data.inputs) - _MOST_INPUTS
    if more > 0:
        inputs += tag("li", f"and {count(more)} more")
    facts = [("read from", tag("ul", inputs)), ("written by", escape(_servers(data)))]
    if data.windows is not None:
        facts.append(("certainty of times", _certainty(data)))
    terms = "".join(tag("div", tag("dt", name) + tag("dd", text)) for name, text in facts)
    return tag("dl", terms, class_="facts")


def _input(path: str, kind: str) -> str:
    return tag("li", f"{tag('code', escape(path))} {tag('span', _KINDS.get(kind, escape(kind)))}")


def _servers(data: ReportData) -> str:
    servers = " and ".join(data.servers) or "unknown"
    return f"{servers}, on {plural(data.hosts, 'host')}" if data.hosts > 1 else servers


def _certainty(data: ReportData) -> str:
    total = data.certainty.total
    counts = [(kind, getattr(data.certainty, kind)) for kind in ("exact", "derived", "bounded")]
    shown = [(kind, number) for kind, number in counts if number]
    bar = "".join(
        tag("i", class_=f"t-{kind}", style=f"flex-grow:{number / total:.4f}")
        for kind, number in shown
    )
    text = ", ".join(f"{share(number, total)} {kind}" for kind, number in shown) or NONE
    if data.incomplete:
        text += f"; {plural(data.incomplete, 'job')} without the put, whose file was removed"
    shown_bar = tag("span", bar, class_="certainty", aria_hidden="true") if bar else ""
    return shown_bar + escape(text)


def key_figures(data: ReportData) -> str:
    windows = data.windows
    if windows is None:
        return ""
    span_s = windows.window_s * len(windows)
    puts, finished = sum(windows.puts), sum(windows.finished)
    timeouts, reserves = sum(windows.timeouts), sum(windows.reserves)
    done = f"{share(finished, puts)} of those put" if puts else ""
    for name, ended in ENDS.items():
        number = sum(getattr(windows, name))
        if number and name != "deletes":
            done += f", {count(number)} {ended}"
    tiles = [
        _tile("jobs put", count(puts), numbers.mean_rate(puts, span_s)),
        _tile("finished", count(finished), done),
        _tile("there in the end", numbers.between(*windows.left), _by_state(windows)),
        _tile("buried in the end", count(windows.buried[-1]), _burying(windows), "bad"),
        _tile("timeouts", count(timeouts), _of_reserves(timeouts, reserves), "bad"),
        _spread_tile("waiting for a worker", data.wait, sum(windows.wait_unknown)),
        _spread_tile("time to finish", data.finish, sum(windows.finish_unknown)),
    ]
    if data.disk is not None:
        live = f"{share(data.disk.live_bytes, data.disk.size)} of it live"
        tiles.append(_tile("binlogs", numbers.size(data.disk.size), live))
    else:
        mean = sum(windows.put_bytes) / puts if puts else None
        tiles.append(_tile("bodies", numbers.size(sum(windows.put_bytes)), _mean(mean)))
    return tag("section", "".join(tiles), class_="tiles", aria_label="Key figures")


def _tile(name: str, value: str, below: str, bad: str = "") -> str:
    class_ = "tile bad" if bad and value != "0" else "tile"
    shown = tag("h2", escape(name)) + tag("p", escape(value), class_="value")
    return tag("div", shown + tag("p", escape(below), class_="below"), class_=class_)


def _spread_tile(name: str, spread: Percentiles, unknown: int) -> str:
    rest = f"unknown for {plural(unknown, 'job')}" if unknown else ""
    if spread.p50_s is None:
        return _tile(name, NONE, rest or "no data")
    shown = f"median; p99 {duration(spread.p99_s)}"
    return _tile(name, duration(spread.p50_s), f"{shown}; {rest}" if rest else shown)


def _by_state(windows: Windows) -> str:
    others = (name for name in STATES if name != "buried")
    states = [(name.replace("_", " "), getattr(windows, name)[-1]) for name in others]
    return ", ".join(f"{count(number)} {name}" for name, number in states if number)


def _burying(windows: Windows) -> str:
    buries, kicks = sum(windows.buries), sum(windows.kicks)
    return f"{plural(buries, 'bury', 'buries')}, {plural(kicks, 'kick')}"


def _of_reserves(timeouts: int, reserves: int) -> str:
    return f"{share(timeouts, reserves)} of {plural(reserves, 'reserve')}" if reserves else ""


def _mean(size: float | None) -> str:
    return f"{numbers.size(size)} on average" if size is not None else ""
