"""The page: all sections in one file of HTML that loads nothing from anywhere.

Style and script are in it, and its policy lets no other script run, whatever bodies and names of
tubes contain. `page` knows no Spark; only `write_report` asks for it.
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
from beanstalkd_py.pipeline.report.data import ReportData
from beanstalkd_py.pipeline.report.dead_letters import dead_letters
from beanstalkd_py.pipeline.report.disk import disk
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.overview import head, key_figures
from beanstalkd_py.pipeline.report.time_plots import over_time
from beanstalkd_py.pipeline.report.tubes import tubes
from beanstalkd_py.pipeline.report.violations import soundness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READING = (
    ("window", "Events are counted in windows of equal length; the time on the axis is UTC."),
    ("wait", "From the put to the first reserve. A delay that was asked for counts."),
    ("time to finish", "From the put until the job was deleted, or its tube truncated."),
    ("p50, p90, p99", "Half, 90 % and 99 % of the jobs took no longer."),
    ("exact", "The time was written down when it happened."),
    ("derived", "It follows from other times, as a reserve does from deadline and TTR."),
    (
        "bounded",
        "Only known to lie between two others; the earliest is used. Durations may be longer.",
    ),
    ("there", "Jobs that were put and have not ended: ready, reserved, delayed or buried."),
    (
        "live, dead",
        "Bytes of a binlog that live jobs need, and the rest.",
    ),
    ("write amplification", "Bytes that were written, for each byte of the entries of puts."),
)


def write_report(
    spark: SparkSession,
    inputs: Sequence[str],
    output: str | Path,
    begin: datetime | None = None,
    end: datetime | None = None,
    window: str | None = None,
) -> None:
    """Reads binlog folders and history stores and writes the page to `output`.

    `begin` (included) and `end` (not) limit the time that is shown; `window` is a duration as Spark
    writes it (`5 minutes`), else it is chosen by the time shown. Raises PipelineUsageError, and
    OSError if the file cannot be written.
    """
    from beanstalkd_py.pipeline.report.gather import gather

    place = Path(output)
    if not place.parent.is_dir():
        raise PipelineUsageError(f"folder {place.parent} does not exist; make it first")
    if place.is_dir():
        raise PipelineUsageError(f"{place} is a folder; give the name of a file")
    text = page(gather(spark, inputs, begin, end, window))
    # A page that is there stays whole until the new one is.
    fresh = place.with_name(f"{place.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(place)


def page(data: ReportData) -> str:
    """The whole page, as text of HTML."""
    style, script = _resource("style.css"), _resource("pointer.js")
    parts = [head(data), key_figures(data)]
    if data.windows is not None:
        parts.append(over_time(data.windows))
        parts += [tubes(data), dead_letters(data)]
    parts += [disk(data), soundness(data), _foot()]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(_title(data))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + tag("main", "\n".join(part for part in parts if part))
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


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
    return tag("footer", tag("h2", "How to read this") + tag("dl", terms))


def _resource(name: str) -> str:
    return files("beanstalkd_py.pipeline.report").joinpath(name).read_text("utf-8")
