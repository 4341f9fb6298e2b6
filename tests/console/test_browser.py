"""The pages of the console in a real browser, with a server that works."""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from console.browsing import Tab, chromium, console, tab
from playwright.sync_api import Browser, Page, Response
from processes import slowness
from servers import Server, our_command, ours, reference
from wire import in_tube

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PAGES = (
    "/s/0",
    "/s/0/tubes",
    "/s/0/tubes/mails",
    "/s/0/tubes/a%2Fb%3Bc%24(d)",
    "/s/0/jobs?tube=mails",
    "/s/0/jobs/1",
    "/s/0/connections",
    "/s/0/dead-letters",
    "/s/0/dead-letters?tube=mails",
    "/s/0/history",
    "/s/0/schedules",
    "/s/0/policies",
    "/s/0/binlog",
    "/s/0/replication",
    "/s/0/doctor",
    "/s/0/operations",
    "/audit",
)
HOSTILE = b'<img src=x onerror="document.title=1"><script>document.title=2</script>'
ODD_TUBE = b"a/b;c$(d)"
LONG_S = 30.0
LONG_MS = 30_000.0
FRAME_S = 1 / 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    for name in ("log", "history"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    options = ("-b", folder / "log", "--history", folder / "history")
    with ours(*options, "--control", folder / "control") as running:
        with running.connect() as client:
            for tube in (b"mails", ODD_TUBE):
                client.ask(b"use %b\r\n" % tube)
                for body in (HOSTILE, b'{"to": "ann@example.com", "n": 1}', b"\xff\x00\xfe"):
                    client.put(body)
            client.ask(b"watch mails\r\n")
            job = client.reserve()
            client.ask(b"bury %d 0\r\n" % job)
            client.ask(b"delete %d\r\n" % client.reserve())
        yield running


@pytest.fixture(scope="module")
def url(server: Server, folder: Path) -> Iterator[str]:
    options = ("-b", folder / "log", "--history", folder / "history")
    address = ("--addr", f"127.0.0.1:{server.port}", "--control", folder / "control")
    with console(*map(str, (*address, *options)), "--role", "admin") as found:
        yield found


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Tab]:
    with tab(browser, url) as opened:
        yield opened


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_pages_are_accessible(browser: Browser, url: str, look: str) -> None:
    """By the rules of axe for WCAG 2.1 AA; no page scrolls sideways, or asks other hosts."""
    size = {"width": 390, "height": 844} if look == "phone" else {}
    with tab(browser, url, dark=look == "dark", **size) as opened:
        for path in PAGES:
            opened.open(path)
            opened.page.wait_for_timeout(300)
            assert opened.violations() == [], path
            width = opened.page.evaluate("document.documentElement.scrollWidth")
            assert width <= opened.page.evaluate("window.innerWidth"), path


def test_bodies_and_tubes_are_text(page: Tab) -> None:
    page.open("/s/0/jobs/1")
    page.wait_for_text('<img src=x onerror="document.title=1">')
    page.open("/s/0/tubes/a%2Fb%3Bc%24(d)")
    page.wait_for_text("a/b;c$(d)")
    assert page.page.title() not in ("1", "2")


def test_every_length_of_a_page_of_jobs(page: Tab) -> None:
    page.open("/s/0/jobs?tube=mails")
    choice = page.page.locator("main label", has_text="Page").locator("select")
    choice.wait_for()
    lengths = [one.get_attribute("value") or "" for one in choice.locator("option").all()]
    assert len(lengths) > 1
    for length in lengths:
        wanted = re.compile(rf"/jobs\?.*limit={length}$")
        with page.page.expect_response(wanted) as found:
            choice.select_option(length)
        assert found.value.ok


def test_a_tube_whose_name_a_browser_would_remove(page: Tab, server: Server) -> None:
    with in_tube(server.connect(), b".") as client:
        client.put(b"x")
    page.open("/s/0/tubes")
    page.page.get_by_role("link", name=".", exact=True).click()
    page.page.wait_for_url("**/s/0/tubes/~.")
    page.page.wait_for_selector("h1 .tube-name:text-is('.')")
    page.page.reload()
    page.page.wait_for_selector("h1 .tube-name:text-is('.')")
    answer = page.page.evaluate("fetch('/api/s/0/tubes/~.').then((it) => it.json())")
    assert answer["stats"]["name"] == "."
    assert "No such tube" not in page.text()


def size_of(response: Response) -> int:
    return len(response.body()) if "/static/" in response.url else 0


def test_a_first_page_is_small_and_fast(browser: Browser, url: str) -> None:
    sizes: list[int] = []
    with tab(browser, url) as opened:
        opened.page.on(
            "response", lambda one: sizes.append(len(one.body())) if "/static/" in one.url else None
        )
        opened.open("/s/0")
        opened.page.wait_for_timeout(500)
        transferred = opened.page.evaluate(
            "performance.getEntriesByType('resource').filter(one => one.name.includes('/static/'))"
            ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
        )
    assert 20_000 < transferred < 150_000
    assert sum(sizes) > transferred, "the files are compressed"


def test_keys_reach_everything(page: Tab, server: Server) -> None:
    page.open("/s/0")
    page.wait_for_text("Rates per second")
    page.page.wait_for_timeout(500)  # until the page listens to keys
    page.page.keyboard.press("g")
    page.page.keyboard.press("t")
    page.page.wait_for_url("**/s/0/tubes")
    page.page.keyboard.press("Control+k")
    page.page.keyboard.type("mails")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url("**/s/0/tubes/mails")
    page.page.keyboard.press("?")
    page.page.wait_for_selector("dialog[open], [role=dialog]")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("dialog[open], [role=dialog]", state="hidden")


OPEN_PALETTE = """async () => {
  dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
  for (let turns = 0; turns < 10; turns += 1) await Promise.resolve();
  return document.activeElement.getAttribute("aria-label");
}"""


def test_what_is_typed_right_after_a_key_reaches_its_dialog(page: Tab) -> None:
    """The dialog has the focus before the browser handles another key or paints."""
    page.open("/s/0")
    page.wait_for_text("Rates per second")
    page.page.wait_for_timeout(500)
    assert page.page.evaluate(OPEN_PALETTE) == "Page, tube or job id"


def test_a_server_that_dies_and_returns(browser: Browser, tmp_path: Path) -> None:
    with ours("-b", tmp_path) as first, console("--addr", f"127.0.0.1:{first.port}") as url:
        with first.connect() as client:
            client.ask(b"use mails\r\n")
            client.put(b"x")
        with tab(browser, url) as opened:
            opened.open("/s/0/tubes")
            opened.wait_for_text("mails")
            first.kill()
            opened.page.wait_for_selector("text=no server at")
            command = [*our_command(), "-p", str(first.port), "-b", str(tmp_path)]
            again = Server(command, first.port, {})
            try:
                opened.page.wait_for_selector("text=no server at", state="hidden", timeout=LONG_MS)
                opened.wait_for_text("mails")
            finally:
                again.stop()


def test_c_beanstalkd(browser: Browser) -> None:
    with (
        reference() as running,
        console("--addr", f"127.0.0.1:{running.port}", "--role", "admin") as url,
    ):
        with running.connect() as client:
            client.ask(b"use mails\r\n")
            client.put(b"to ann")
        with tab(browser, url) as opened:
            opened.open("/s/0/tubes/mails")
            opened.wait_for_text("mails")
            for name in ("Move", "Truncate"):
                opened.page.get_by_role("button", name=name).wait_for()
            opened.open("/s/0/jobs/1")
            opened.wait_for_text("to ann")
            opened.open("/s/0/connections")  # says what is needed for it


def test_two_users_see_what_the_other_does(browser: Browser, url: str, server: Server) -> None:
    with tab(browser, url) as one, tab(browser, url) as other:
        other.open("/s/0/operations")
        one.open("/s/0/tubes/mails")
        one.page.get_by_role("button", name="Put", exact=True).click()
        one.page.get_by_role("dialog").get_by_label("Body").fill("from the console")
        one.page.get_by_role("dialog").get_by_role("button", name="Put").click()
        other.wait_for_text("into mails")
    with server.connect() as client:
        assert b"from the console" in b"".join(
            client.ask(b"peek %d\r\n" % job) for job in range(1, 20)
        )


@dataclass(frozen=True)
class Scrolling:
    """Seconds per frame: between frames, and of CPU in the thread of the page."""

    frame_s: float
    work_s: float


def scrolled(page: Page, script: str) -> Scrolling:
    page.bring_to_front()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def cpu_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))

    before_s = cpu_s()
    frames_ms = page.evaluate(script)
    return Scrolling(statistics.mean(frames_ms) / 1000, (cpu_s() - before_s) / len(frames_ms))


def test_ten_thousand_tubes_scroll_smoothly(browser: Browser, tmp_path: Path) -> None:
    """Frames that take longer than usual would show as jumps.

    A page that only writes as many rows for each frame says what the machine does meanwhile.
    Rows whose layout is not that of a table are still rows for those who do not see them.
    """
    with ours("-b", tmp_path) as running, console("--addr", f"127.0.0.1:{running.port}") as url:
        with running.connect() as client:
            for begin in range(0, 10_000, 500):
                numbers = range(begin, begin + 500)
                client.send(
                    b"".join(b"use tube.%05d\r\nput 0 0 9 1\r\nx\r\n" % one for one in numbers)
                )
                for _ in range(1000):
                    client.reply(LONG_S)
        with tab(browser, url) as opened:
            opened.open("/s/0/tubes")
            opened.wait_for_text("10,001 tubes", LONG_S)
            rows = opened.page.locator("main tbody tr").count()
            assert 10 < rows < 200, "only the visible rows exist"
            columns = opened.page.locator("main tbody tr").nth(5).locator("td").count()
            bare = opened.page.context.new_page()
            bare.set_content(
                f"<script>let rows = {rows}, columns = {columns};</script><table></table>"
            )
            works, frames = [], []
            for _ in range(3):
                of_bare, of_page = scrolled(bare, BARE), scrolled(opened.page, SCROLL)
                works.append(of_page.work_s / of_bare.work_s)
                frames.append(of_page.frame_s / max(of_bare.frame_s, FRAME_S * slowness()))
            # Rows that are grids have medians of 1.05 to 1.15 on a busy machine, rows of a table of
            # 1.2 to 1.25: too near for a limit in between.
            assert statistics.median(works) < 1.3, works
            assert statistics.median(frames) < 1.3, frames
            opened.page.bring_to_front()
            session = opened.page.context.new_cdp_session(opened.page)
            session.send("Accessibility.enable")
            tree = session.send("Accessibility.getFullAXTree")["nodes"]
            found = {node["role"]["value"] for node in tree if not node["ignored"]}
            assert {"table", "row", "columnheader", "rowheader", "cell"} <= found


FRAMES = """
const measure = (step) => new Promise((done) => {
  const frames = [];
  let last = performance.now(), count = 0;
  const each = (now) => {
    frames.push(now - last);
    last = now;
    step(count);
    if (++count < 90) requestAnimationFrame(each); else done(frames);
  };
  requestAnimationFrame(each);
});
"""
SCROLL = f"""
() => {{
  {FRAMES}
  const box = [...document.querySelectorAll("main, main *")].find((one) =>
    one.scrollHeight > 10 * one.clientHeight && one.clientHeight > 100)
    || document.scrollingElement;
  return measure(() => {{ box.scrollTop += 400; }});
}}
"""
BARE = f"""
() => {{
  {FRAMES}
  const table = document.querySelector("table");
  const row = (number) => "<tr>" + ("<td>" + number + "</td>").repeat(columns) + "</tr>";
  return measure((count) => {{
    table.innerHTML = Array.from({{ length: rows }}, (_, one) => row(count * rows + one)).join("");
  }});
}}
"""


def test_an_operator_finds_why_jobs_are_late(browser: Browser, tmp_path: Path) -> None:
    """A consumer hangs with a job, and its dead letters are redriven at 50 per second."""
    control = tmp_path / "control"
    with (
        ours("-b", tmp_path, "--control", control) as running,
        console(
            *("--addr", f"127.0.0.1:{running.port}", "--control", str(control)),
            *("--role", "operate"),
        ) as url,
        running.connect() as producer,
        running.connect() as hanging,
    ):
        producer.ask(b"use mails\r\n")
        producer.ask(b"watch mails\r\n")
        for number in range(100):
            body = json.dumps({"to": f"user{number}@example.com", "try": number}).encode()
            job = producer.put(body)
            assert producer.reserve() == job
            producer.ask(b"bury %d 0\r\n" % job)
        late = [producer.put(b"late %d" % number) for number in range(5)]
        hanging.ask(b"watch mails\r\n")
        assert hanging.reserve() == late[0]
        with tab(browser, url) as opened:
            opened.open("/s/0/tubes")
            opened.page.get_by_role("link", name="mails").first.click()
            opened.wait_for_text("buried 100")
            opened.open("/s/0/connections")
            opened.wait_for_text(str(late[0]))  # the consumer that holds it
            opened.page.get_by_role("link", name=str(late[0])).first.click()
            opened.wait_for_text("late 0")
            opened.wait_for_text("reserved")
            opened.open("/s/0/dead-letters?tube=mails")
            opened.wait_for_text("100 jobs")
            opened.page.get_by_role("button", name="Redrive", exact=True).click()
            dialog = opened.page.get_by_role("dialog")
            dialog.get_by_label("Jobs per second").fill("50")
            dialog.get_by_text("100").first.wait_for()
            begun = time.monotonic()
            dialog.get_by_role("button", name="Redrive").click()
            opened.open("/s/0/operations")
            finished: list[int] = []

            def finish() -> None:
                while len(finished) < 104:
                    job = int(producer.ask(b"reserve-with-timeout 20\r\n", LONG_S).split()[1])
                    producer.ask(b"delete %d\r\n" % job)
                    finished.append(job)

            consuming = threading.Thread(target=finish)
            consuming.start()
            opened.wait_for_text("Made 100 buried jobs of mails ready", LONG_S)
            assert 1.5 < time.monotonic() - begun < 10
            consuming.join(LONG_S)
            assert len(finished) == 104
            opened.open("/s/0/dead-letters")
            opened.wait_for_text("No buried jobs")
