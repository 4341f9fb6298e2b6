"""The section about disk use: live and dead bytes, and the jobs that keep files."""

from __future__ import annotations

from beanstalkd_py.pipeline.report import axes
from beanstalkd_py.pipeline.report.data import BinlogFile, Disk, ReportData, Shard
from beanstalkd_py.pipeline.report.frame import Size
from beanstalkd_py.pipeline.report.markup import (
    Column,
    colour_key,
    escape,
    file_cell,
    table,
    tag,
    tube_cell,
)
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
from beanstalkd_py.pipeline.report.plots import Bar, bars

_SIZES = (Size("full", 1104, 200), Size("middle", 700, 200), Size("narrow", 350, 180))
_MOST_PINNED = 8


def disk(data: ReportData) -> str:
    if data.disk is None:
        return ""
    title = tag("h2", "Binlogs on the disk")
    if not data.disk.shards:
        return tag("section", title + tag("p", "The binlogs are empty.", class_="nothing"))
    shards, files = _shards(data.disk, data.many_hosts), _files(data.disk)
    return tag("section", title + shards + files + _pinned(data.disk, data.many_hosts))


def _shards(shown: Disk, many_hosts: bool) -> str:
    most = max(shard.size for shard in shown.shards)

    def name(shard: Shard) -> str:
        own = shard.shard or "one worker"
        return escape(f"{shard.host} {own}" if many_hosts else own)

    def amplification(shard: Shard) -> str:
        times = shard.write_amplification
        return NONE if times is None else f"{digits(times)}{TIMES}"

    columns = (
        Column("host and shard" if many_hosts else "shard", name, None),
        Column[Shard]("live and dead", lambda s: _bar(s.live_bytes, s.size, most), "drawn"),
        Column[Shard]("files", lambda s: count(s.files)),
        Column[Shard]("bytes", lambda s: size(s.size)),
        Column[Shard]("live", lambda s: escape(share(s.live_bytes, s.size))),
        Column("write amplification", amplification),
    )
    foot = f"and {plural(shown.more_shards, 'more shard')}" if shown.more_shards else ""
    return table("Shards", columns, shown.shards, foot)


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
    caption = tag("span", escape(note) + " " + colour_key(("live", "dead")))
    head = tag("figcaption", tag("b", "Files") + caption)
    many = len({(file.host, file.shard) for file in shown.files}) > 1
    each = [_file_bar(file, many) for file in shown.files]
    axis = axes.of_sizes(max(file.size for file in shown.files), intervals=3)
    drawn = "".join(bars("files", "Bytes of each file", variant, axis, each) for variant in _SIZES)
    return tag("figure", head + drawn, class_="wide")


def _file_bar(file: BinlogFile, many: bool) -> Bar:
    number = file.file.removeprefix("binlog.").removesuffix(".done")
    where = f"{file.host} {file.shard}".strip() + " " if many else ""
    jobs = plural(file.live_jobs, "live job")
    tooltip = f"{where}{file.file}: {size(file.size)}, {size(file.live_bytes)} live, {jobs}"
    dead = max(0, file.size - file.live_bytes)
    return Bar(number, tooltip, (("c-live", file.live_bytes), ("c-dead", dead)))


def _pinned(shown: Disk, many_hosts: bool) -> str:
    kept = [file for file in shown.files if file.live_jobs]
    if not kept:
        return tag("p", "No live job keeps one of these files.", class_="nothing")
    # First the files that a few jobs keep.
    kept.sort(key=lambda file: (file.live_bytes / max(file.size, 1), file.file))

    def name(file: BinlogFile) -> str:
        return file_cell(file.host, file.shard, file.file, many_hosts)

    def oldest(file: BinlogFile) -> str:
        return NONE if file.oldest_job_id is None else f"job {file.oldest_job_id}"

    def tube(file: BinlogFile) -> str:
        return tube_cell(file.oldest_job_tube, file.host, many_hosts=False)

    columns = (
        Column("file", name, None),
        Column[BinlogFile]("bytes", lambda file: size(file.size)),
        Column[BinlogFile]("live", lambda file: escape(share(file.live_bytes, file.size))),
        Column[BinlogFile]("kept by", lambda file: plural(file.live_jobs, "job")),
        Column("the oldest of them", oldest),
        Column("in tube", tube, None),
        Column[BinlogFile]("put at (UTC)", lambda file: moment(file.oldest_job_put_at)),
    )
    title = tag("h3", "What keeps files")
    text = "A file stays as long as a live job has its body there. Least live bytes first."
    return title + tag("p", text) + table("What keeps files", columns, kept[:_MOST_PINNED])
