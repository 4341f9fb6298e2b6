"""The section about disk use: live and dead bytes, and the jobs that keep files."""

from __future__ import annotations

from beanstalkd_py.pipeline.report.chart import Chart, Curve
from beanstalkd_py.pipeline.report.data import BinlogFile, Disk, ReportData, Shard
from beanstalkd_py.pipeline.report.markup import (
    Column,
    colour_sample,
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
    parts = {"live": live, "dead": max(0, whole - live)}
    bar = "".join(
        colour_sample(name, f"width:{100 * part / max(most, 1):.2f}%")
        for name, part in parts.items()
    )
    return tag("span", bar, class_="bar", aria_hidden="true")


def _files(shown: Disk) -> str:
    files = shown.files
    if not files:
        return ""
    note = "live bytes, and dead bytes that a compaction frees"
    if shown.more_files:
        note += f"; {plural(shown.more_files, 'file')} with fewer dead bytes left out"
    many = len({(file.host, file.shard) for file in files}) > 1
    names = [
        f"{file.host} {file.shard} {file.file}".replace("  ", " ") if many else file.file
        for file in files
    ]
    live = [file.live_bytes for file in files]
    dead = [max(0, file.size - file.live_bytes) for file in files]
    most = max(range(len(files)), key=dead.__getitem__)
    return Chart(
        title="Files",
        note=note,
        description=f"{plural(len(files), 'file')}; most dead bytes: {names[most]}, "
        f"{size(files[most].size)}, {size(live[most])} live",
        head="file",
        rows=names,
        curves=[Curve("live", live), Curve("dead", dead)],
        write=size,
        options={
            "unit": "size",
            "stacked": True,
            "names": [f.file.removeprefix("binlog.").removesuffix(".done") for f in files],
        },
        others=[
            ("bytes", [size(file.size) for file in files]),
            ("live jobs", [count(file.live_jobs) for file in files]),
        ],
        wide=True,
    ).html()


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
