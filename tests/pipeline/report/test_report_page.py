"""The page of a report, without Spark."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations

import pytest
from pipeline.report.report_data import BEGIN, busy_day, windows

from beanstalkd_py.pipeline.report.data import (
    STATES,
    Disk,
    Percentiles,
    ReportData,
    Tube,
    Violations,
    Windows,
)
from beanstalkd_py.pipeline.report.markup import COLOURS, DASHED
from beanstalkd_py.pipeline.report.page import page

EVIL = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>&lt;"""
VOID = {"meta"}
STYLE = files("beanstalkd_py.pipeline.report").joinpath("style.css").read_text("utf-8")


class Reader(HTMLParser):
    """Parses the elements and text of a page and checks their nesting."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)

    def named(self, name: str) -> Iterator[dict[str, str | None]]:
        return (attributes for tag, attributes in self.elements if tag == name)


def words(text: str) -> str:
    """Return the text with normalized spaces."""
    return " ".join("".join(Reader(text).text).split())


def nothing() -> ReportData:
    whole = busy_day()
    return ReportData(
        inputs=whole.inputs, made_at=whole.made_at, disk=Disk((), ()), violations=Violations()
    )


def one_job(**columns: object) -> ReportData:
    """One put in one window, with changed columns."""
    names = [name for name in Windows.__dataclass_fields__ if name not in ("begin", "window_s")]
    values = {name: (None,) if name.endswith("_s") else (0,) for name in names}
    known = {**values, "puts": (1,), "put_bytes": (12,), "ready": (1,), **columns}
    each = Windows(BEGIN, 1.0, **known)
    return replace(
        nothing(), windows=each, jobs=1, hosts=1, tubes=(Tube("ann", "default", each),), disk=None
    )


CASES: dict[str, Callable[[], ReportData]] = {
    "busy": lambda: busy_day(more=9975),
    "nothing": nothing,
    "one job": one_job,
    "one job done": lambda: one_job(
        deletes=(1,), ready=(0,), wait_p50_s=(0.01,), wait_p90_s=(0.01,), wait_p99_s=(0.01,)
    ),
    "unknown": lambda: one_job(
        ready=(0,), ready_or_reserved=(1,), unknown=(2,), finish_unknown=(2,), wait_unknown=(3,)
    ),
    "two windows": lambda: replace(busy_day(windows_each=2), violations=Violations()),
    "many windows": lambda: busy_day(windows_each=1000),
    "history alone": lambda: replace(busy_day(), disk=None, violations=None),
    "several hosts": lambda: replace(busy_day(), hosts=3),
}


@functools.cache
def page_of(case: str) -> str:
    return page(CASES[case]())


@pytest.mark.parametrize("case", CASES)
def test_a_page_is_well_formed_small_and_loads_nothing(case: str) -> None:
    text = page_of(case)
    reader = Reader(text)
    assert (reader.wrong, reader.open) == ([], [])
    assert len(text.encode()) < 2_000_000
    markup = re.sub(r"<script.*</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"https?://", re.sub(r"POST https?://hooks[^<]*", "", markup))
    for name in ("link", "img", "iframe", "object", "embed", "base", "form"):
        assert list(reader.named(name)) == []
    for _, attributes in reader.elements:
        assert not {"src", "href", "xlink:href"} & set(attributes)
    assert "url(" not in text
    assert "@import" not in text
    identities = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(identities) == len(set(identities))
    read = " ".join(reader.text)
    assert not re.search(r"\b(nan|inf|None)\b(?! is left)", read)


@pytest.mark.parametrize("case", CASES)
def test_every_plot_has_a_description(case: str) -> None:
    plots = [a for a in Reader(page_of(case)).named("div") if "data-chart" in a]
    named = [plot for plot in plots if plot.get("aria-hidden") != "true"]
    for attributes in named:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 40
    for attributes in plots:
        (series, *_) = json.loads(attributes["data-chart"] or "")["series"]
        assert series["values"]
    if case == "busy":
        # Seven over time, and the files; puts of 25 tubes, and states of 12.
        assert (len(named), len(plots)) == (8, 8 + 25 + 12)


def test_plots_have_the_numbers_of_the_data() -> None:
    data = busy_day()
    shown, disk = data.windows, data.disk
    assert shown is not None and disk is not None
    plots = [
        json.loads(attributes["data-chart"] or "")
        for attributes in Reader(page(data)).named("div")
        if "data-chart" in attributes
    ]
    plotted = [[tuple(series["values"]) for series in plot["series"]] for plot in plots]
    rates, depth, buried, wait, finish, mishaps, put_bytes, *tubes, files = plotted
    per_s = [tuple(n / 300 for n in c) for c in (shown.puts, shown.finished, shown.put_bytes)]
    assert rates == [pytest.approx(each, rel=1e-5) for each in per_s[:2]]
    assert put_bytes == [pytest.approx(per_s[2], rel=1e-5)]
    assert depth == [shown.ready, shown.reserved, shown.delayed, shown.buried]
    assert buried == [shown.buried]
    for name, plot in (("wait", wait), ("finish", finish)):
        assert plot == [
            pytest.approx(getattr(shown, f"{name}_p{p}_s"), rel=1e-5) for p in (99, 90, 50)
        ]
    events = (shown.timeouts, shown.releases, shown.buries, shown.kicks)
    assert mishaps == [pytest.approx([n / 300 for n in each], rel=1e-5) for each in events]
    assert tubes[0] == [tuple(data.tubes[0].windows.puts)]
    assert tubes[25][0] == data.tubes[0].windows.ready
    assert files == [
        tuple(file.live_bytes for file in disk.files),
        tuple(file.size - file.live_bytes for file in disk.files),
    ]
    assert (plots[0]["begin"], plots[0]["window"]) == (BEGIN.timestamp(), 300)


def test_text_of_users_is_escaped() -> None:
    whole = busy_day()
    data = replace(
        whole,
        hosts=2,
        inputs=(replace(whole.inputs[0], path=EVIL),),
        servers=(EVIL,),
        tubes=tuple(replace(tube, name=EVIL, host=EVIL) for tube in whole.tubes),
        dead=tuple(
            replace(group, tube=EVIL, host=EVIL, signature=EVIL, sample_body=EVIL)
            for group in whole.dead
        ),
    )
    assert whole.disk is not None and whole.violations is not None
    pinned = replace(whole.disk.files[-1], host=EVIL, shard=EVIL, file=EVIL, oldest_job_tube=EVIL)
    shard = replace(whole.disk.shards[0], host=EVIL, shard=EVIL)
    bad = replace(whole.violations.first[0], host=EVIL, shard=EVIL, file=EVIL, what=EVIL)
    data = replace(
        data, disk=Disk((shard,), (pinned,)), violations=Violations(((EVIL, 1),), (bad,))
    )
    reader = Reader(page(data))
    assert len(list(reader.named("script"))) == 1
    assert list(reader.named("img")) == []
    assert not [a for _, a in reader.elements if any(name.startswith("on") for name in a)]
    assert (reader.wrong, reader.open) == ([], [])
    assert "".join(reader.text).count(EVIL) > 30


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("\x00\x1b[31m", "\\x00\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\udc80", "\\udc80"),
        ("Gr\u00fc\u00dfe", "Gr\u00fc\u00dfe"),
    ],
)
def test_invisible_characters_are_escaped(body: str, shown: str) -> None:
    whole = busy_day()
    text = page(replace(whole, dead=(replace(whole.dead[0], sample_body=body),)))
    assert shown in "".join(Reader(text).text)
    text.encode()


def test_only_the_script_of_the_page_may_run() -> None:
    (policy,) = (
        meta["content"]
        for meta in Reader(page_of("busy")).named("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert re.fullmatch(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/]{43}='", policy
    )


def test_the_key_figures_are_sums_of_the_windows() -> None:
    data = busy_day()
    assert data.windows is not None
    text = words(page(data))
    shown = data.windows
    for number in (sum(shown.puts), sum(shown.finished), sum(shown.timeouts), shown.buried[-1]):
        assert f"{number:,}".replace(",", " ") in text
    assert "median; p99 31 s" in text
    assert "99.5 % exact, 0.4 % derived, < 0.1 % bounded" in text
    assert "212 jobs without the put" in text


def test_omitted_rows_are_counted() -> None:
    text = words(page_of("busy"))
    assert "and 9 975 more tubes with 29 925 jobs put" in text
    assert "and 3 more kinds with 17 jobs" in text
    assert "and 308 more" in text


def test_every_plot_has_a_table_of_its_numbers() -> None:
    text = page_of("busy")
    tables = re.findall(r'<details class="numbers">.*?</details>', text, re.DOTALL)
    assert [table.count("<tr>") for table in tables] == [97] * 7 + [25]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("nothing", "The inputs have no job"),
        ("nothing", "The binlogs are empty."),
        ("nothing", "The entries of the binlogs are consistent."),
        ("one job", "1 job was put in 1 s and 0 finished. In the end 1 is there, none of them"),
        ("one job", "No job is known to have been reserved in this time"),
        ("one job", "No timeout, release, bury or kick in this time."),
        ("one job", "No job is buried, and none timed out repeatedly."),
        ("one job done", "1 job was put in 1 s and 1 finished. None is left."),
    ],
)
def test_empty_sections_have_a_sentence(case: str, sentence: str) -> None:
    assert sentence in words(page_of(case))


def test_unknown_states_and_times_are_shown_as_such() -> None:
    text = words(page_of("unknown"))
    assert "In the end 1\N{EN DASH}3 are there." in text
    assert "1 ready or reserved, 2 unknown" in text
    assert "unknown for 3 jobs" in text
    assert "The times of 2 jobs are unknown." in text
    described = page_of("unknown")
    assert "ready or reserved: at most 1" in described and "unknown: at most 2" in described
    assert "unknown: at most" not in page_of("one job")


def test_a_window_that_is_shorter_than_a_unit_has_no_rates() -> None:
    whole = busy_day()
    assert whole.windows is not None
    short = words(page(replace(whole, windows=replace(whole.windows, window_s=0.02), tubes=())))
    assert "jobs in windows of 20 ms" in short and "bytes in windows of 20 ms" in short
    assert not re.search(r"\d/(s|min|h|day)\b(?! on average)", short)
    assert "jobs per second, mean of each window of 5 min" in words(page(whole))


def test_a_history_alone_has_no_section_of_binlogs() -> None:
    text = words(page_of("history alone"))
    assert "Binlogs on the disk" not in text
    assert "Violations" not in text


def test_percentiles_that_span_decades_have_a_logarithmic_axis() -> None:
    whole = busy_day()
    assert whole.windows is not None
    flat = tuple(1.0 for _ in whole.windows.puts)
    even = replace(whole.windows, wait_p50_s=flat, wait_p90_s=flat, wait_p99_s=flat)
    assert words(page(whole)).count("; logarithmic") == 2
    assert words(page(replace(whole, windows=even))).count("; logarithmic") == 1


def test_the_size_of_the_page_does_not_depend_on_the_number_of_tubes() -> None:
    few, many = page(busy_day(more=0)), page_of("busy")
    assert len(many) - len(few) < 200


def test_an_unknown_tube_differs_from_a_tube_named_unknown() -> None:
    each = windows(1, 5.0, 10)
    data = replace(
        busy_day(), tubes=(Tube("a", None, each), Tube("a", "unknown", each, Percentiles()))
    )
    text = page(data)
    assert text.count("<i>unknown</i>") >= 1
    assert 'title="unknown">unknown<' in text


def colours(theme: str, style: str = STYLE) -> dict[str, str]:
    """Return the colours of the light or dark theme."""
    blocks = re.findall(r":root[^{]* \{(.*?)\}", style, re.DOTALL)
    block = blocks[{"light": 0, "dark": 1}[theme]]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def linear(colour: str) -> list[float]:
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour: str) -> float:
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# Colour vision with protanopia and deuteranopia (Machado, Oliveira, Fernandes 2009).
SEEN = {
    "normal": ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
}


def lab(colour: str, seen: str) -> tuple[float, float, float]:
    """Convert to CIE L*a*b*, D65."""
    parts = linear(colour)
    r, g, b = (
        min(1.0, max(0.0, sum(w * p for w, p in zip(row, parts, strict=True))))
        for row in SEEN[seen]
    )
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_have_enough_contrast(theme: str) -> None:
    known = colours(theme)
    for name in ("text", "text-2", "accent", "danger"):
        assert contrast(known[name], known["surface"]) >= 4.5, name
        assert contrast(known[name], known["bg"]) >= 4.5, name
    for name in {*COLOURS.values()} - {"line-2", "p50"}:
        assert contrast(known[name], known["surface"]) >= 3, name
    for name in ("line-2", "p50"):
        assert contrast(known[name], known["surface"]) >= 1.6, name


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_colours_of_states_suit_the_colour_blind(theme: str, seen: str) -> None:
    known = colours(theme)
    states = {
        name: lab(known[COLOURS[name]], seen)
        for name in (state.replace("_", " ") for state in STATES)
    }
    for one, other in combinations(states, 2):
        apart = math.dist(states[one], states[other])
        # Stripes distinguish others.
        assert apart >= 20 or (one in DASHED) != (other in DASHED), (one, other, apart)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_those_of_the_console(theme: str) -> None:
    console = files("beanstalkd_py").joinpath("console/static/console.css")
    theirs, ours = colours(theme, console.read_text("utf-8")), colours(theme)
    shared = ours.keys() - {"p50", "p90", "p99"}
    assert {name: theirs.get(name) for name in shared} == {name: ours[name] for name in shared}


@pytest.mark.parametrize("name", ["uPlot.esm.js", "uPlot.min.css", "LICENSE"])
def test_the_chart_library_is_the_published_one(name: str) -> None:
    sums = {
        "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
        "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    }
    place = files("beanstalkd_py").joinpath("console/static/vendor/uplot", name)
    assert hashlib.sha256(place.read_bytes()).hexdigest() == sums[name]
