"""Dead letters: buried jobs and those that time out again and again, alike ones in one row."""

from __future__ import annotations

from beanstalkd_py.pipeline.report.data import DeadGroup, ReportData
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.numbers import count, duration, moment, plural
from beanstalkd_py.pipeline.report.table import Head, table, tube_cell

_HEADS = (
    Head("tube", number=False),
    Head("what they look like, and one of them", number=False, class_="body"),
    Head("jobs"),
    Head("buried"),
    Head("timed out"),
    Head("oldest"),
    Head("last event (UTC)"),
)


def dead_letters(data: ReportData) -> str:
    """The section."""
    title = tag("h2", "Dead letters")
    if not data.dead:
        text = "No job is buried, and none has timed out again and again."
        return tag("section", title + tag("p", text, class_="nothing"))
    jobs = sum(group.jobs for group in data.dead) + data.more_dead_jobs
    stay = "is" if jobs == 1 else "are"
    text = (
        f"{plural(jobs, 'job')} {stay} buried or timed out again and again; those whose bodies are "
        "alike stand together. Numbers in bodies are N, hexadecimal ones H."
    )
    rows = [_row(group, data.many_hosts) for group in data.dead]
    foot = ""
    if data.more_dead_groups:
        groups = plural(data.more_dead_groups, "more kind")
        foot = escape(f"and {groups} with {plural(data.more_dead_jobs, 'job')}")
    shown = table("Dead letters", _HEADS, rows, foot)
    return tag("section", title + tag("p", escape(text)) + shown, class_="whole")


def _row(group: DeadGroup, many_hosts: bool) -> list[str]:
    return [
        tube_cell(group.tube, group.host, many_hosts),
        _body(group),
        count(group.jobs),
        count(group.buried),
        count(group.timed_out),
        escape(duration(group.oldest_s)),
        escape(moment(group.last_event_at)),
    ]


def _body(group: DeadGroup) -> str:
    if group.signature is None or group.sample_body is None:
        return tag("i", f"body not known, job {group.sample_id}")
    sample = tag("span", f"job {group.sample_id}: ") + tag("code", escape(group.sample_body))
    signature = tag("code", escape(group.signature), class_="signature")
    return signature + tag("div", sample, class_="sample")
