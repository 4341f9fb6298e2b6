"""The section about dead letters."""

from __future__ import annotations

from beanstalkd_py.pipeline.report.data import DeadGroup, ReportData
from beanstalkd_py.pipeline.report.markup import Column, escape, table, tag, tube_cell
from beanstalkd_py.pipeline.report.numbers import count, duration, moment, plural


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
    columns = (
        Column[DeadGroup]("tube", lambda g: tube_cell(g.tube, g.host, data.many_hosts), None),
        Column[DeadGroup]("signature, and an example", _body, "body"),
        Column[DeadGroup]("jobs", lambda g: count(g.jobs)),
        Column[DeadGroup]("buried", lambda g: count(g.buried)),
        Column[DeadGroup]("timed out", lambda g: count(g.timed_out)),
        Column[DeadGroup]("oldest", lambda g: duration(g.oldest_s)),
        Column[DeadGroup]("last event (UTC)", lambda g: moment(g.last_event_at)),
    )
    foot = ""
    if data.more_dead_groups:
        groups = plural(data.more_dead_groups, "more kind")
        foot = escape(f"and {groups} with {plural(data.more_dead_jobs, 'job')}")
    shown = table("Dead letters", columns, data.dead, foot)
    return tag("section", title + tag("p", escape(text)) + shown, class_="whole")


def _body(group: DeadGroup) -> str:
    if group.signature is None or group.sample_body is None:
        return tag("i", f"body unknown, job {group.sample_id}")
    sample = tag("span", f"job {group.sample_id}: ") + tag("code", escape(group.sample_body))
    signature = tag("code", escape(group.signature), class_="signature")
    return signature + tag("div", sample, class_="sample")
