"""The page: a self-contained HTML file. Only `write_report` needs Spark.

Style and script are inline, with those of uPlot. The content security policy blocks every other
script, which protects against markup in bodies and tube names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.report.data import ReportData, Violation
from beanstalkd_py.pipeline.report.dead_letters import dead_letters
from beanstalkd_py.pipeline.report.disk import disk
from beanstalkd_py.pipeline.report.markup import Column, escape, file_cell, table, tag
from beanstalkd_py.pipeline.report.numbers import NONE, count, plural
from beanstalkd_py.pipeline.report.overview import head, key_figures
from beanstalkd_py.pipeline.report.time_plots import over_time
from beanstalkd_py.pipeline.report.tubes import tubes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UPLOT = "console/static/vendor/uplot"
_READING = (
    ("window", "Events are counted in windows of equal length; the time on the axis is UTC."),
    ("wait", "From the put to the first reserve, including a delay."),
    ("time to finish", "From the put until the job was deleted, truncated or ended by a policy."),
    ("p50, p90, p99", "50, 90 and 99 % of the jobs took no longer."),
    ("exact", "The server recorded the time."),
    ("derived", "The time follows from others, as that of a reserve from deadline and TTR."),
    ("bounded", "The time is between two others. Durations that depend on it are left out."),
    ("there", "Jobs that were put and have not ended: ready, reserved, delayed or buried."),
    ("ready or reserved", "The binlog does not show in which of the two states a job was."),
    ("unknown", "Jobs that were in one of several states, or had ended."),
    ("live, dead", "Bytes of a binlog that live jobs need, and the rest."),
    ("write amplification", "Bytes written for each byte of put entries."),
)


def write_report(
    spark: SparkSession,
    inputs: Sequence[str],
    output: str | Path,
    begin: datetime | None = None,
    end: datetime | None = None,
    window: str | None = None,
) -> int:
    """Write a report about binlog folders and history stores to `output`.

    Returns the number of damaged places, which the page names and leaves out.

    `begin` and `end` (excluded) limit the time shown. `window` is a duration in Spark's syntax (`5
    minutes`); the default depends on the time shown. Raises PipelineUsageError, OSError.
    """
    from beanstalkd_py.pipeline.report.gather import gather

    place = Path(output)
    if not place.parent.is_dir():
        raise PipelineUsageError(f"folder {place.parent} does not exist; make it first")
    if place.is_dir():
        raise PipelineUsageError(f"{place} is a folder; give a file")
    data = gather(spark, inputs, begin, end, window)
    text = page(data)
    staged = place.with_name(f"{place.name}.new")
    staged.unlink(missing_ok=True)  # never write to a link that another user has put there
    with staged.open("x", encoding="utf-8") as file:
        file.write(text)
    staged.replace(place)
    return data.faults


def page(data: ReportData) -> str:
    style = _resource(f"{_UPLOT}/uPlot.min.css") + _resource("pipeline/report/style.css")
    script = _resource(f"{_UPLOT}/uPlot.esm.js") + _resource("pipeline/report/charts.js")
    parts = [head(data), key_figures(data)]
    if data.windows is not None:
        parts.append(over_time(data.windows))
        parts += [tubes(data), dead_letters(data)]
    parts += [disk(data), violations(data), _foot()]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(_title(data))}</title>\n<style>\n{style}</style>\n"
        "<noscript><style>.plot { display: none; }</style></noscript>\n</head>\n<body>\n"
        + tag("main", "\n".join(part for part in parts if part))
        + f'\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def violations(data: ReportData) -> str:
    title = tag("h2", "Violations") + _faults(data.faults)
    if data.violations is None:
        return tag("section", title) if data.faults else ""
    total = data.violations.total
    if not total:
        text = "The entries of the binlogs are consistent."
        kind = "nothing" if data.faults else "nothing good"
        return tag("section", title + tag("p", text, class_=kind))
    kinds = "".join(
        tag("li", f"{tag('b', count(number))} {escape(what)}")
        for what, number in data.violations.kinds
    )
    text = f"{plural(total, 'entry', 'entries')} of the binlogs contradict others:"
    summary = tag("p", escape(text))
    columns = (
        Column[Violation](
            "where", lambda v: file_cell(v.host, v.shard, v.file, data.many_hosts), None
        ),
        Column[Violation]("offset", lambda v: count(v.offset)),
        Column[Violation]("job", lambda v: NONE if v.id is None else str(v.id)),
        Column[Violation]("violation", lambda v: escape(v.what), "body"),
    )
    first = data.violations.first
    left = total - len(first)
    shown = table("Violations", columns, first, f"and {count(left)} more" if left else "")
    content = title + summary + tag("ul", kinds, class_="kinds") + shown
    return tag("section", content, class_="whole")


def _faults(faults: int) -> str:
    if not faults:
        return ""
    text = f"{plural(faults, 'place')} could not be read and left out of this page."
    return tag("p", f"{tag('b', escape(text))} Run binlog verify and history verify for details.")


def _title(data: ReportData) -> str:
    begin = data.windows.begin if data.windows else data.made_at
    return f"beanstalkd report, {begin:%Y-%m-%d}"


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _foot() -> str:
    terms = "".join(
        tag("div", tag("dt", escape(word)) + tag("dd", escape(text))) for word, text in _READING
    )
    return tag("footer", tag("h2", "How to read this") + tag("dl", terms), class_="card")


def _resource(name: str) -> str:
    return files("beanstalkd_py").joinpath(name).read_text("utf-8")
