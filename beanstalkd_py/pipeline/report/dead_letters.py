"""The section about dead letters."""

from __future__ import annotations

from beanstalkd_py.pipeline.report.data import DeadGroup, ReportData
from beanstalkd_py.pipeline.report.markup import Head, escape, table, tag, tube_cell
from beanstalkd_py.pipeline.report.numbers import count, duration, moment, plural

_HEADS = (
    Head("tube", number=False),
    Head("signature, and an example", number=False, class_="body"),
    Head("jobs"),
    Head("buried"),
    Head("timed out"),
    Head("oldest"),
    Head("last event (UTC)"),
)


def dead_letters(data: ReportData) -> str:
    title = tag("h2", "Dead letters")
    if not data.dead:
        text = "No job is buried, and none timed out repeatedly."
        return tag("section", title + tag("p", text, class_="nothing"))
    jobs = sum(group.jobs for group in data.dead) + data.more_dead_jobs
    verb = "is" if jobs == 1 else "are"
    text = (
        f"{plural(jobs, 'job')} {verb} buried or timed out repeatedly, grouped by similar bodies. "
        "N stands for a number in a body, H for a hexadecimal number."
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
        return tag("i", f"body unknown, job {group.sample_id}")
    sample = tag("span", f"job {group.sample_id}: ") + tag("code", escape(group.sample_body))
    signature = tag("code", escape(group.signature), class_="signature")
    return signature + tag("div", sample, class_="sample")
