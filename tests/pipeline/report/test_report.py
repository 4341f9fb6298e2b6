"""The report about real servers, gathered by Spark and shown in a browser."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pipeline.report.browser import Browser
from pipeline.report.report_data import busy_day
from pipeline.report.test_report_page import CASES
from pipeline.workloads import Run, events, lines, made

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.report.data import STATES, ReportData, Windows
from beanstalkd_py.pipeline.report.numbers import count, short_count
from beanstalkd_py.pipeline.report.page import page, write_report

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED = {
    "puts": "put",
    "deletes": "delete",
    "truncates": "truncate",
    "expires": "expire",
    "dead_letters": "dead-letter",
    "discards": "discard",
    "moves": "move",
    "reserves": "reserve",
    "releases": "release",
    "timeouts": "timeout",
    "buries": "bury",
    "kicks": "kick",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """This server with a history, and C beanstalkd."""
    each = {
        "ours": ("--jobs=700", "--binlog-size=64K", "--history=HISTORY", "--truncate=1"),
        "c": ("--jobs=300", "--binlog-size=64K", "--server=c"),
    }
    return made(tmp_path_factory.mktemp("report"), each)


def gathered(spark: Any, *inputs: Path, **limits: Any) -> ReportData:
    from beanstalkd_py.pipeline.report.gather import gather

    given = {"begin": None, "end": None, "window": None, **limits}
    return gather(spark, [str(path) for path in inputs], **given)


@pytest.fixture(scope="module")
def whole(spark: Any, runs: dict[str, Run]) -> ReportData:
    """The report about binlog and history of this server."""
    return gathered(spark, runs["ours"].binlog, runs["ours"].history)


# --- plain computation ---------------------------------------------------------------------------


def micros(time: datetime) -> int:
    return (time.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def rank(times: list[float], percent: int) -> float | None:
    """Nearest-rank percentile."""
    times = sorted(times)
    return times[(len(times) * percent + 99) // 100 - 1] if times else None


def plain(
    job_timelines: list[Any], shown: Windows, since: int, until: int
) -> dict[str, tuple[Any, ...]]:
    """Compute the columns of windows event by event."""
    length = round(shown.window_s * 1_000_000)
    columns: dict[str, list[Any]] = {}
    for n in range(len(shown)):
        low = max(since, micros(shown.begin) + n * length)
        high = min(until, micros(shown.begin) + (n + 1) * length)
        inside = [
            (timeline, e)
            for timeline in job_timelines
            for e in timeline.events
            if low <= micros(e.at) < high
        ]
        states: Counter[str | None] = Counter()
        for timeline in job_timelines:
            before = [span.state for span in timeline.states if micros(span.at) < high]
            states[before[-1] if before else None] += 1
        names = Counter(event["event"] for _, event in inside)
        row: dict[str, Any] = {column: names[event] for column, event in COUNTED.items()}
        row |= {state: states[state] for state in STATES}
        row["put_bytes"] = sum(timeline.body_size for timeline, e in inside if e["event"] == "put")
        for name, at in (("wait", "first_reserve_at"), ("finish", "end_at")):
            done = [
                timeline
                for timeline in job_timelines
                if timeline[at] and low <= micros(timeline[at]) < high
            ]
            row[f"{name}_unknown"] = 0  # the server has a history
            for percent in (50, 90, 99):
                times = [timeline[f"{name}_s"] for timeline in done]
                row[f"{name}_p{percent}_s"] = rank(times, percent)
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: tuple(column) for name, column in columns.items()}


def columns_of(shown: Windows) -> dict[str, tuple[Any, ...]]:
    names = set(Windows.__dataclass_fields__) - {"begin", "window_s"}
    return {name: getattr(shown, name) for name in names}


# --- data ----------------------------------------------------------------------------------------


def test_totals_match_the_log(runs: dict[str, Run], whole: ReportData) -> None:
    jobs = [events(of_job) for of_job in lines(runs["ours"]).values()]
    happened = Counter(event.kind for job in jobs for event in job)
    assert whole.windows is not None
    shown = whole.windows
    assert {n: sum(getattr(shown, n)) for n in COUNTED} == {
        n: happened[e] for n, e in COUNTED.items()
    }
    there = sum(job[-1].kind not in ("delete", "truncate") for job in jobs)
    assert shown.depth[-1] == there
    assert shown.buried[-1] == sum(job[-1].kind == "bury" for job in jobs)
    assert (whole.jobs, whole.earlier, whole.incomplete) == (len(jobs), 0, 0)
    assert whole.certainty.bounded == 0
    assert whole.servers == ("beanstalkd_py",)
    assert 40 <= len(shown) <= 121
    assert len(whole.tubes) == len({line[0]["tube"] for line in lines(runs["ours"]).values()})
    assert whole.violations is not None and whole.violations.total == 0


def test_a_limited_time_matches_a_plain_computation(spark: Any, runs: dict[str, Run]) -> None:
    from beanstalkd_py.pipeline.timelines_of import timelines_of

    inputs = [runs["ours"].binlog, runs["ours"].history]
    job_timelines = timelines_of(spark, [str(path) for path in inputs]).collect()
    # Chosen by events, not by the clock, because a load waits most of the time.
    times = sorted(micros(event.at) for timeline in job_timelines for event in timeline.events)
    since, until = times[len(times) // 3], times[len(times) * 3 // 4]
    begin, end = (EPOCH + timedelta(microseconds=time) for time in (since, until))
    window = f"{max(1, (until - since) // 40_000)} milliseconds"
    part = gathered(spark, *inputs, begin=begin, end=end, window=window)
    assert part.windows is not None
    assert since - part.windows.window_s * 1e6 < micros(part.windows.begin)
    assert columns_of(part.windows) == plain(job_timelines, part.windows, since, until)
    assert part.earlier == sum(micros(timeline.put_at) < since for timeline in job_timelines) > 0
    assert len(part.tubes) > 2
    for tube in part.tubes:
        of_tube = [
            timeline
            for timeline in job_timelines
            if (timeline.host, timeline.tube) == (tube.host, tube.name)
        ]
        assert columns_of(tube.windows) == plain(of_tube, tube.windows, since, until), tube.name


def test_c_beanstalkd_is_recognized_by_its_entries(spark: Any, runs: dict[str, Run]) -> None:
    found = gathered(spark, runs["c"].binlog)
    assert found.servers == ("C beanstalkd",)
    assert found.certainty.bounded + found.certainty.derived > 0
    assert found.disk is not None
    size = sum(shard.size for shard in found.disk.shards)
    assert 0 < size <= sum(path.stat().st_size for path in runs["c"].binlog.glob("binlog.*"))
    assert sum(file.size for file in found.disk.files) == size
    text = page(found)
    assert "C beanstalkd" in text


def test_faults_are_counted(
    spark: Any, runs: dict[str, Run], whole: ReportData, tmp_path: Path
) -> None:
    from beanstalkd_py.pipeline.report.page import violations

    assert whole.faults == 0 and "could not be read" not in violations(whole)
    folder = Path(shutil.copytree(runs["ours"].binlog, tmp_path / "damaged"))
    first = min(folder.glob("binlog.*"), key=lambda path: int(path.name.split(".")[1]))
    data = bytearray(first.read_bytes())
    data[400] ^= 1
    first.write_bytes(data)
    found = gathered(spark, folder)
    assert found.faults == 1
    assert "1 place could not be read" in violations(found)


def test_limits_count_the_rest(
    spark: Any, runs: dict[str, Run], whole: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beanstalkd_py.pipeline.report import gather, gather_timelines

    monkeypatch.setattr(gather_timelines, "MOST_TUBES", 2)
    for name in ("MOST_DEAD", "MOST_FILES", "MOST_SHARDS"):
        monkeypatch.setattr(gather, name, 1)
    part = gathered(spark, runs["ours"].binlog, runs["ours"].history)
    assert part.windows == whole.windows is not None
    assert (part.tubes, part.more_tubes) == (whole.tubes[:2], len(whole.tubes) - 2)
    assert whole.more_puts == 0 < part.more_puts
    assert part.more_puts == sum(sum(tube.windows.puts) for tube in whole.tubes[2:])
    assert part.dead == whole.dead[:1]
    assert part.more_dead_groups == whole.more_dead_groups + len(whole.dead) - 1 > 0
    jobs = sum(group.jobs for group in whole.dead[1:])
    assert part.more_dead_jobs == whole.more_dead_jobs + jobs > 0
    assert whole.disk is not None and part.disk is not None
    files = sorted(whole.disk.files, key=lambda file: file.live_bytes - file.size)
    assert (part.disk.files, part.disk.more_files) == (tuple(files[:1]), len(files) - 1)
    assert (part.disk.shards, part.disk.more_shards) == (whole.disk.shards, 0)


def test_violations_are_counted_by_kind(
    spark: Any, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beanstalkd_py.pipeline import read_binlog
    from beanstalkd_py.pipeline.jobs import verify
    from beanstalkd_py.pipeline.report import gather

    for shard in ("shard-000", "shard-001"):
        shutil.copytree(runs["ours"].binlog, tmp_path / "twice" / shard)
    monkeypatch.setattr(gather, "MOST_SHARDS", 1)
    found = gathered(spark, tmp_path / "twice")
    entries = read_binlog(spark, str(tmp_path / "twice"), columns=verify.COLUMNS)
    expected = Counter(row.what for row in verify.verify(entries).collect())
    assert found.violations is not None and found.disk is not None
    assert dict(found.violations.kinds) == expected and expected["is in two shards"] > 0
    assert len(found.violations.first) == 12
    assert (len(found.disk.shards), found.disk.more_shards) == (1, 1)


def test_an_error_is_one_line(spark: Any, runs: dict[str, Run], tmp_path: Path) -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    folder = str(runs["c"].binlog)
    for limits, wrong in (
        ({"begin": noon, "end": noon}, "is not after the begin"),
        ({"begin": noon.replace(tzinfo=None)}, "has no time zone"),
        ({"window": "3 apples"}, "is not a duration"),
        ({"window": "10 microseconds"}, "more than 1000;"),
    ):
        with pytest.raises(PipelineUsageError, match=wrong) as caught:
            write_report(spark, [folder], tmp_path / "report.html", **limits)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_time_without_events_makes_an_empty_report(
    spark: Any, runs: dict[str, Run], tmp_path: Path
) -> None:
    output = tmp_path / "report.html"
    begin = datetime(2001, 1, 1, tzinfo=UTC)
    write_report(spark, [str(runs["c"].binlog)], output, begin=begin, end=begin + timedelta(days=1))
    assert "The inputs have no job" in output.read_text()
    assert list(tmp_path.iterdir()) == [output]


# --- in a browser --------------------------------------------------------------------------------

OVERFLOW = """(document, window) => {
  const wide = document.documentElement;
  const inside = (one) => one.closest('.scrolls, .uplot, caption');
  const beyond = [...document.querySelectorAll('body *')].filter((one) => !inside(one)
    && one.getBoundingClientRect().right > window.innerWidth + 0.5);
  return [wide.scrollWidth - wide.clientWidth, beyond.map((one) => one.outerHTML.slice(0, 80))];
}"""
DRAWN = """(document, window) => {
  const style = window.getComputedStyle(document.documentElement);
  const rgb = (name) =>
    style.getPropertyValue(name).match(/\\w\\w/g).map((hex) => parseInt(hex, 16));
  const isNear = (pixel, colour) =>
    pixel[3] > 99 && colour.every((n, at) => Math.abs(n - pixel[at]) < 50);

  /* Whether a curve has its colour at the highest value that no later curve covers. Null without
     one, and for a layer too thin to see. */
  function isDrawn({ data, chart }, series, n) {
    const own = data.stacked ? data.series.length - n : n + 1;
    const y = (of, at) => chart.valToPos(chart.data[of]?.[at] ?? 0, 'y', true);
    const isCovered = (at) => !data.stacked
      && chart.data.some((values, of) => of > own && Math.abs(y(of, at) - y(own, at)) < 8);
    const value = (at) => series.values[at - (data.ends ? 1 : 0)] ?? -1;
    const places = [...chart.data[0].keys()].filter((at) => value(at) >= 0 && !isCovered(at));
    if (!places.length) return null;
    const at = places.reduce((most, each) => (value(each) > value(most) ? each : most));
    const x = chart.valToPos(chart.data[0][at], 'x', true);
    const base = data.stacked ? y(own + 1, at) : y(own, at);
    // A layer has to be thicker than the sample, or its stripes may be outside of that.
    const isThin = (place) => place in series.values && y(own + 1, place) - y(own, place) < 12;
    if (data.stacked && [at - 1, at, at + 1].some(isThin)) return null;
    const middle = (y(own, at) + base) / 2;
    const { data: pixels } = chart.ctx.getImageData(x - 4, middle - 4, 9, 9);
    const colour = rgb(series.colour);
    return [...Array(81).keys()].some((k) => isNear(pixels.slice(4 * k, 4 * k + 4), colour));
  }

  function look(plot) {
    const { chart, data } = plot;
    const canvas = chart.ctx.canvas;
    const { width, height } = canvas;
    const { data: pixels } = chart.ctx.getImageData(0, 0, width, height);
    const isInked = (x, y) => pixels[4 * (y * width + x) + 3] > 0;
    const edge = [...Array(height).keys()].some((y) => isInked(0, y) || isInked(width - 1, y));
    const box = plot.getBoundingClientRect();
    const own = canvas.getBoundingClientRect();
    return {
      title: plot.closest('figure')?.querySelector('b')?.textContent ?? '',
      drawn: data.series.map((series, n) => isDrawn(plot, series, n)),
      inked: pixels.filter((value, at) => at % 4 === 3 && value).length,
      clipped: !data.small && edge,
      fits: Math.abs(box.width - own.width) < 1.5 && own.bottom < box.bottom + 1.5,
      ticks: chart.axes.map((axis) => axis._values ?? []),
      last: chart.data.map((column) => column.at(-1)),
    };
  }
  return [...document.querySelectorAll('.plot')].map(look);
}"""
POINTED = """(document, window) => {
  const over = document.querySelector('.chart .u-over');
  const box = over.getBoundingClientRect();
  const at = { clientX: box.left + box.width * 60.7 / 96, clientY: box.top + 50, bubbles: true };
  const legends = () =>
    [...document.querySelectorAll('.legend:has(.at)')].map((legend) => legend.textContent);
  const before = legends();
  over.dispatchEvent(new window.MouseEvent('mouseenter', at));
  over.dispatchEvent(new window.MouseEvent('mousemove', at));
  return [before, legends()];
}"""
PRINTED = """async (document, window) => {
  const look = async (event) => {
    window.dispatchEvent(new window.Event(event));
    await null;
    await null;
    return [...document.querySelectorAll('.plot')].map(
      ({ chart }) => [chart.width, chart.ctx.canvas.width, chart.series[1].stroke()]);
  };
  return [await look('beforeprint'), await look('afterprint')];
}"""
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture(scope="module")
def written(whole: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put_down(whole, tmp_path_factory.mktemp("page"))


def put_down(data: ReportData, folder: Path) -> Path:
    place = folder / "page.html"
    place.write_text(page(data), encoding="utf-8")
    return place


@pytest.mark.parametrize("width", [1280, 800, 600, 390])
@pytest.mark.parametrize("case", ["busy", "several hosts", "one job"])
def test_a_page_fits_its_width(browser: Browser, tmp_path: Path, case: str, width: int) -> None:
    place = put_down(CASES[case](), tmp_path)
    assert browser.measured(place, width, OVERFLOW) == [0, []]
    for plot in browser.measured(place, width, DRAWN):
        assert plot["fits"] and not plot["clipped"], plot


@pytest.mark.parametrize("theme", ["1", "0"], ids=["light", "dark"])
@pytest.mark.parametrize("case", ["busy", "unknown", "two windows", "many windows"])
def test_every_chart_is_drawn(browser: Browser, tmp_path: Path, case: str, theme: str) -> None:
    place = put_down(CASES[case](), tmp_path)
    option = f"--blink-settings=preferredColorScheme={theme}"
    assert browser.console(place) == []
    plots = browser.measured(place, 1280, DRAWN, option)
    assert plots
    for plot in plots:
        assert plot["inked"] > 10, plot
        assert False not in plot["drawn"], plot
        if plot["title"]:
            assert True in plot["drawn"], plot
            assert all(len(ticks) >= 2 for ticks in plot["ticks"]) or case == "unknown", plot


def test_layers_are_sums(browser: Browser, tmp_path: Path) -> None:
    data = busy_day()
    (plot,) = (
        plot
        for plot in browser.measured(put_down(data, tmp_path), 1280, DRAWN)
        if plot["title"] == "Jobs by state"
    )
    assert data.windows is not None
    ready, reserved, delayed, buried = (
        getattr(data.windows, state)[-1] for state in ("ready", "reserved", "delayed", "buried")
    )
    sums = [ready, ready + reserved, ready + reserved + delayed]
    assert plot["last"][1:] == [data.windows.depth[-1], *reversed(sums)]
    assert plot["last"][0] == data.windows.end.timestamp()
    assert sums[-1] + buried == data.windows.depth[-1]


@pytest.mark.parametrize(
    ("begin", "window_s", "ticks"),
    [
        ((22, 12), 1125, ["12:00\n22 Nov", "18:00", "00:00\n23 Nov", "06:00", "12:00", "18:00"]),
        ((22, 12), 0.001, ["00.000\n12:00", "00.020", "00.040", "00.060", "00.080"]),
        ((22, 12), 0.25, ["12:00:00\n22 Nov", "12:00:05", "12:00:10", "12:00:15", "12:00:20"]),
        ((29, 0), 86400 * 4, ["Jan\n2027", "Mar", "May", "Jul", "Sep", "Nov"]),
        ((29, 0), 86400 * 40, ["2028", "2030", "2032", "2034", "2036"]),
    ],
)
def test_ticks_are_round_times_in_utc(
    browser: Browser, tmp_path: Path, begin: tuple[int, int], window_s: float, ticks: list[str]
) -> None:
    at = datetime(2026, 11, *begin, tzinfo=UTC)
    shown = replace(busy_day().windows, begin=at, window_s=window_s)  # type: ignore[type-var]
    place = put_down(replace(busy_day(), windows=shown), tmp_path)
    rates = browser.measured(place, 600, DRAWN)[0]
    assert rates["title"] == "Jobs put and finished"
    assert rates["ticks"][0] == ticks


def test_the_page_of_a_real_server_fits_without_console_messages(
    browser: Browser, written: Path
) -> None:
    assert browser.console(written) == []
    for width in (1280, 390):
        assert browser.measured(written, width, OVERFLOW) == [0, []]
        for plot in browser.measured(written, width, DRAWN):
            assert False not in plot["drawn"] and plot["fits"] and not plot["clipped"], plot


def test_the_pointer_shows_the_numbers_of_a_window(browser: Browser, tmp_path: Path) -> None:
    place = put_down(busy_day(), tmp_path)
    before, after = browser.measured(place, 1280, POINTED)
    assert before[0] == "put 102/sfinished 266/shighest"
    shown = busy_day().windows
    assert shown is not None
    put, done = (short_count(counts[60] / 300) for counts in (shown.puts, shown.finished))
    assert after[0] == f"put {put}/sfinished {done}/s21 Nov 23:00:00"
    assert after[2] == f"buried {count(shown.buried[60])}21 Nov 23:00:00"
    # The other charts over time show the same window; that of files shows none.
    assert [text.endswith("21 Nov 23:00:00") for text in after] == [True] * 7 + [False]
    assert after[7] == before[7]


def test_a_foreign_script_does_not_run(browser: Browser, tmp_path: Path) -> None:
    place = put_down(busy_day(), tmp_path)
    text = place.read_text("utf-8")
    place.write_text(text.replace("</main>", "<script>console.log('ran')</script></main>"))
    (actual,) = browser.console(place)
    assert "Content Security Policy" in actual


@pytest.mark.parametrize(
    ("theme", "paper"), [("1", [255, 255, 255]), ("0", [0x16, 0x1B, 0x18])], ids=["light", "dark"]
)
def test_something_is_drawn_in_both_themes(
    browser: Browser, tmp_path: Path, theme: str, paper: list[int]
) -> None:
    place = put_down(busy_day(), tmp_path)
    option = f"--blink-settings=preferredColorScheme={theme}"
    seen = browser.picture(place, 1280, 4000, option)
    assert seen["paper"] == paper
    assert seen["colours"] > 200
    assert min(seen["inked"]) > 0.01, json.dumps(seen)


def test_the_page_prints_on_a_few_sheets(browser: Browser, tmp_path: Path) -> None:
    paper = browser.pdf(put_down(busy_day(more=9975), tmp_path))
    assert 3 <= paper.count(b"/Type /Page\n") <= 7


def test_charts_on_paper_are_sharp_and_light(browser: Browser, tmp_path: Path) -> None:
    place = put_down(busy_day(), tmp_path)
    paper, screen = browser.measured(place, 390, PRINTED, DARK)
    assert paper[0] == [668, 3 * 668, "#0f8a5a"]
    assert [width for width, _, _ in paper[1:7]] == [318] * 6
    width, pixels, colour = screen[0]
    assert (width == pixels < 390, colour) == (True, "#5ccf9b")
