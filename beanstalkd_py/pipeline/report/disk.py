"""The section about disk use: live and dead bytes, and the jobs that keep files."""

from __future__ import annotations

from beanstalkd_py.pipeline.report import axes
from beanstalkd_py.pipeline.report.data import BinlogFile, Disk, ReportData, Shard
from beanstalkd_py.pipeline.report.frame import Size
from beanstalkd_py.pipeline.report.markup import Head, escape, table, tag, tube_cell
from beanstalkd_py.pipeline.report.numbers import (
    NONE,
    TIMES,
    count,
    digits,
    moment,
    plural,
    share,
    size,
)
from beanstalkd_py.pipeline.report.plots import Column, columns

_SIZES = (Size("full", 1104, 200), Size("middle", 700, 200), Size("narrow", 350, 180))
_MOST_PINNED = 8


def disk(data: ReportData) -> str:
    if data.disk is None:
        return ""
    title = tag("h2", "Binlogs on the disk")
    if not data.disk.shards:
        return tag("section", title + tag("p", "The binlogs are empty.", class_="nothing"))
    parts = [title, _shards(data.disk, data.many_hosts), _files(data.disk), _pinned(data)]
    return tag("section", "".join(parts))


def _shards(shown: Disk, many_hosts: bool) -> str:
    heads = (
        Head("host and shard" if many_hosts else "shard", number=False),
        Head("live and dead", number=False, class_="drawn"),
        Head("files"),
        Head("bytes"),
        Head("live"),
        Head("write amplification"),
    )
    most = max(shard.size for shard in shown.shards)
    rows = [_shard(shard, most, many_hosts) for shard in shown.shards]
    foot = f"and {plural(shown.more_shards, 'more shard')}" if shown.more_shards else ""
    return table("Shards", heads, rows, foot)


def _shard(shard: Shard, most: int, many_hosts: bool) -> list[str]:
    name = shard.shard or "one worker"
    times = shard.write_amplification
    return [
        escape(f"{shard.host} {name}" if many_hosts else name),
        _bar(shard.live_bytes, shard.size, most),
        count(shard.files),
        escape(size(shard.size)),
        escape(share(shard.live_bytes, shard.size)),
        NONE if times is None else f"{digits(times)}{TIMES}",
    ]


def _bar(live: int, whole: int, most: int) -> str:
    parts = (("c-live", live), ("c-dead", max(0, whole - live)))
    bar = "".join(
        tag("i", class_=colour, style=f"width:{100 * part / max(most, 1):.2f}%")
        for colour, part in parts
    )
    return tag("span", bar, class_="bar", aria_hidden="true")


def _files(shown: Disk) -> str:
    if not shown.files:
        return ""
    note = "live bytes, and dead bytes that a compaction frees"
    if shown.more_files:
        note += f"; {plural(shown.more_files, 'file')} with fewer dead bytes left out"
    keys = "".join(
        tag("span", tag("i", class_=f"c-{part}") + part, class_="key") for part in ("live", "dead")
    )
    head = tag("figcaption", tag("b", "Files") + tag("span", escape(note) + " " + keys))
    many = len({(file.host, file.shard) for file in shown.files}) > 1
    each = [_column(file, many) for file in shown.files]
    axis = axes.of_sizes(max(file.size for file in shown.files), intervals=3)
    drawn = "".join(columns("files", "Bytes of each file", one, axis, each) for one in _SIZES)
    return tag("figure", head + drawn, class_="wide")


def _column(file: BinlogFile, many: bool) -> Column:
    number = file.file.removeprefix("binlog.").removesuffix(".done")
    where = f"{file.host} {file.shard}".strip() + " " if many else ""
    jobs = plural(file.live_jobs, "live job")
    tooltip = f"{where}{file.file}: {size(file.size)}, {size(file.live_bytes)} live, {jobs}"
    dead = max(0, file.size - file.live_bytes)
    return Column(number, tooltip, (("c-live", file.live_bytes), ("c-dead", dead)))


def _pinned(data: ReportData) -> str:
    found = [file for file in data.disk.files if file.live_jobs] if data.disk else []
    if not found:
        return tag("p", "No live job keeps one of these files.", class_="nothing")
    # First the files that a few jobs keep.
    found.sort(key=lambda file: (file.live_bytes / max(file.size, 1), file.file))
    heads = (
        Head("file", number=False),
        Head("bytes"),
        Head("live"),
        Head("kept by"),
        Head("the oldest of them"),
        Head("in tube", number=False),
        Head("put at (UTC)"),
    )
    rows = [_kept(file, data.many_hosts) for file in found[:_MOST_PINNED]]
    title = tag("h3", "What keeps files")
    text = "A file stays as long as a live job has its body there. Least live bytes first."
    return title + tag("p", text) + table("What keeps files", heads, rows)


def _kept(file: BinlogFile, many_hosts: bool) -> list[str]:
    where = " ".join(filter(None, (file.host if many_hosts else "", file.shard, file.file)))
    oldest = NONE if file.oldest_job_id is None else f"job {file.oldest_job_id}"
    return [
        escape(where),
        escape(size(file.size)),
        escape(share(file.live_bytes, file.size)),
        escape(plural(file.live_jobs, "job")),
        escape(oldest),
        tube_cell(file.oldest_job_tube, file.host, many_hosts=False),
        escape(moment(file.oldest_job_put_at)),
    ]
