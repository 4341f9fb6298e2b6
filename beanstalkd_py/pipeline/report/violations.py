"""Whether the binlogs agree with themselves: the violations that were found."""

from __future__ import annotations

from beanstalkd_py.pipeline.report.data import ReportData, Violation
from beanstalkd_py.pipeline.report.markup import escape, tag
from beanstalkd_py.pipeline.report.numbers import NONE, count, plural
from beanstalkd_py.pipeline.report.table import Head, table


def soundness(data: ReportData) -> str:
    """The section; nothing if no binlog was read, and all of the histories could be."""
    title = tag("h2", "Soundness") + _unread(data.unread)
    if data.violations is None:
        return tag("section", title) if data.unread else ""
    total = data.violations.total
    if not total:
        text = "Nothing in the binlogs contradicts itself."
        kind = "nothing" if data.unread else "nothing good"
        return tag("section", title + tag("p", text, class_=kind))
    kinds = "".join(
        tag("li", f"{tag('b', count(number))} {escape(what)}")
        for what, number in data.violations.kinds
    )
    says = tag("p", escape(f"{plural(total, 'place')} in the binlogs cannot be right:"))
    heads = (
        Head("where", number=False),
        Head("offset"),
        Head("job"),
        Head("what is wrong", number=False, class_="body"),
    )
    first = data.violations.first
    rows = [_row(violation, data.many_hosts) for violation in first]
    left = total - len(first)
    shown = table("Violations", heads, rows, f"and {count(left)} more" if left else "")
    content = title + says + tag("ul", kinds, class_="kinds") + shown
    return tag("section", content, class_="whole")


def _unread(places: int) -> str:
    if not places:
        return ""
    text = f"{plural(places, 'place')} could not be read and left out of all of this page."
    return tag("p", f"{tag('b', escape(text))} binlog verify and history verify tell where.")


def _row(violation: Violation, many_hosts: bool) -> list[str]:
    host = violation.host if many_hosts else ""
    where = " ".join(filter(None, (host, violation.shard, violation.file)))
    job = NONE if violation.id is None else str(violation.id)
    return [escape(where), count(violation.offset), job, escape(violation.what)]
