"""Pages of the console in a real browser: bodies, searches, history, keys, changes by others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from console.browsing import Tab, chromium, console, tab
from console.consoles import Visitor, users_file
from playwright.sync_api import Browser, Locator, Route
from processes import eventually
from servers import Server, ours
from wire import Client, in_tube

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

BINARY = b"\xff\x00\xfe"
HEX = "ff 00 fe"
PAGE_ROWS = 100
SOON_S = 5.0
LONG_S = 30.0
BUSY = {"error": "4 exports run"}
OPERATION = {"id": 1, "kind": "move", "target": "x", "begun": 1.0, "ended": None, "done": 1}


@dataclass(frozen=True)
class Jobs:
    """Ids of jobs. `text` is ready, the others of the tube mails are what their names say."""

    finished: list[int]
    text: int
    buried: int
    reserved: int


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("server")
    for name in ("log", "history"):
        (folder / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))  # of replays
        yield folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    options = ("-b", folder / "log", "--history", folder / "history")
    with ours(*options, "--control", folder / "control") as running:
        yield running


@pytest.fixture(scope="module")
def jobs(server: Server) -> Iterator[Jobs]:
    with server.connect() as client:
        finished = []
        for tube, count in ((b"finished", PAGE_ROWS + 1), (b"other", 1)):
            client.ask(b"use %b\r\n" % tube)
            finished += [client.put(BINARY) for _ in range(count)]
        client.ask_each([b"delete %d\r\n" % job for job in finished])
        in_tube(client, b"mails")
        buried = client.put(BINARY)
        client.bury(buried)
        reserved = client.put(b"held")
        assert client.reserve() == reserved
        yield Jobs(finished, client.put(b"to ann"), buried, reserved)


@pytest.fixture(scope="module")
def url(server: Server, folder: Path, jobs: Jobs) -> Iterator[str]:
    options = ("-b", folder / "log", "--history", folder / "history")
    address = ("--addr", f"127.0.0.1:{server.port}", "--control", folder / "control")
    with console(*map(str, (*address, *options)), "--role", "admin") as found:
        visitor = visitor_of(found)
        query = {"tube": "finished", "limit": 500}
        count = len(jobs.finished) - 1
        assert eventually(
            lambda: len(visitor.ok("s/0/history/messages", **query)["messages"]) == count, LONG_S
        )
        yield found


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Tab]:
    with tab(browser, url) as opened:
        yield opened


def visitor_of(url: str) -> Visitor:
    return Visitor(urlsplit(url).port or 0)


def button(page: Tab, name: str) -> Locator:
    return page.page.get_by_role("button", name=name, exact=True)


def go(page: Tab, path: str) -> None:
    """Show another page as a link does, without loading the console again."""
    script = (
        "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')); }"
    )
    page.page.evaluate(script, path)


def wait_for_focus(page: Tab, selector: str) -> None:
    end_mono = time.monotonic() + SOON_S
    # The page forbids eval, which wait_for_function needs.
    while not page.page.evaluate("(one) => document.activeElement.matches(one)", selector):
        assert time.monotonic() < end_mono, page.page.evaluate("document.activeElement.outerHTML")
        page.page.wait_for_timeout(20)


def query_of(route: Route) -> dict[str, list[str]]:
    return parse_qs(urlsplit(route.request.url).query)


def test_binary_bodies(page: Tab, jobs: Jobs) -> None:
    page.open(f"/s/0/jobs/{jobs.buried}")
    page.wait_for_text(HEX)
    go(page, "/s/0/dead-letters?tube=mails")
    page.page.get_by_text("Example of a body").click()
    page.wait_for_text(HEX)
    go(page, "/s/0/history?tube=other")
    button(page, str(jobs.finished[-1])).click()
    page.wait_for_text(HEX)
    go(page, f"/s/0/jobs/{jobs.text}")
    page.wait_for_text("to ann")
    button(page, "Hex").click()
    page.wait_for_text(b"to ann".hex(" "))


def test_a_search_goes_on_until_it_finds_something(page: Tab, jobs: Jobs) -> None:
    """The server has ended a page before it found a job."""
    begins: list[int] = []
    held: list[Route] = []

    def answer(route: Route) -> None:
        (after,) = query_of(route)["after"]
        begins.append(int(after))
        if after == "0":
            route.fulfill(json={"jobs": [], "next": 99, "exact": True})
        else:
            held.append(route)

    def next_held() -> Route:
        end_mono = time.monotonic() + SOON_S
        while not held:  # the request begins after the text is shown
            assert time.monotonic() < end_mono
            page.page.wait_for_timeout(20)
        return held.pop()

    page.page.route("**/api/s/0/jobs?*", answer)
    page.open("/s/0/jobs?tube=mails&state=buried")
    page.wait_for_text("Searching, up to job 99")
    assert "No job matches" not in page.text()
    next_held().continue_()
    page.page.get_by_role("link", name=str(jobs.buried)).wait_for()
    button(page, "Reload").click()
    page.wait_for_text("Searching, up to job 99")
    next_held().fulfill(json={"jobs": [], "next": 0, "exact": True})
    page.wait_for_text("No job matches")
    assert begins == [0, 99, 0, 99]

    def answer_of_history(route: Route) -> None:
        if "before" in query_of(route):
            route.continue_()
        else:
            route.fulfill(json={"messages": [], "next": 10**12})

    # Two filters that change at almost the same time.
    page.page.get_by_label("Body contains").fill("b")
    page.page.get_by_label("Tube", exact=True).fill("other")
    page.page.wait_for_url("**tube=other*")
    assert "body=b" in page.page.url

    page.page.route("**/history/messages?*", answer_of_history)
    go(page, "/s/0/history?tube=other&event=deleted")
    button(page, str(jobs.finished[-1])).wait_for()


def test_pages_and_keys_of_the_history(page: Tab, jobs: Jobs) -> None:
    page.open("/s/0/history?tube=finished")
    rows = page.page.locator("main tbody .group-toggle")
    rows.first.click()
    page.page.keyboard.press("ArrowDown")
    wait_for_focus(page, ".row-details *")
    page.page.keyboard.press("ArrowDown")
    wait_for_focus(page, ".row-details + tr .group-toggle")
    page.page.locator(".row-details pre").focus()
    page.page.keyboard.press("ArrowDown")
    page.page.wait_for_timeout(100)
    wait_for_focus(page, "pre")
    button(page, "Older").click()
    page.wait_for_text("Page 2")
    button(page, str(jobs.finished[0])).wait_for()
    page.page.get_by_role("navigation", name="Breadcrumb").get_by_role("link").click()
    page.page.get_by_role("link", name="finished").click()
    page.wait_for_text("Page 1")
    button(page, "Older").click()
    page.wait_for_text("Page 2")
    page.page.get_by_label("Tube", exact=True).fill("other")
    button(page, str(jobs.finished[-1])).wait_for()
    assert "Page 2" not in page.text()
    go(page, "/s/0/history?event=deleted")  # of all tubes
    page.page.get_by_role("columnheader", name="Tube").wait_for()
    button(page, str(jobs.finished[-1])).wait_for()


def test_jobs_of_the_history_are_put_again(page: Tab, server: Server, jobs: Jobs) -> None:
    job = jobs.finished[7]
    dialog = page.page.get_by_role("dialog")
    page.open(f"/s/0/history?tube=finished&event=deleted&key={job}")
    page.page.get_by_label("Body contains").fill("nothing")
    page.wait_for_text("No ended job matches")
    page.page.get_by_label("Body contains").fill("")
    button(page, str(job)).wait_for()
    button(page, "Replay").click()
    dialog.get_by_text(f"with the end deleted and the key {job} are put").wait_for()
    dialog.get_by_label("Conditions").fill("buries>7")
    dialog.get_by_text("Put 0 jobs").wait_for()
    dialog.get_by_label("Conditions").fill("buries=0 & size=3")
    dialog.get_by_label("Into the tube").fill("replayed")
    dialog.get_by_label("Priority").fill("77")
    dialog.get_by_label("Time to run in seconds").fill("88")
    dialog.get_by_text("Put 1 job of 3 bytes").wait_for()
    dialog.get_by_role("button", name="Replay").click()
    page.page.get_by_text("Put 1 job of finished into replayed").wait_for()
    button(page, str(job)).click()
    button(page, "Put again").click()
    dialog.get_by_label("Into the tube").fill("again")
    dialog.get_by_role("button", name="Put again").click()
    page.page.get_by_text(f"Put job {job} into again, as job").wait_for()
    go(page, f"/s/0/jobs/{job}")
    page.wait_for_text("ended: deleted")
    assert "Statistics" not in page.text()
    button(page, "Put again").click()
    dialog.get_by_text(f"Put job {job} of 3 bytes into finished").wait_for()
    with server.connect() as client:
        for tube, pri, ttr in ((b"replayed", "77", "88"), (b"again", "0", "100")):
            client.ask(b"use %b\r\n" % tube)
            found = client.ask(b"peek-ready\r\n")
            assert found.endswith(BINARY + b"\r\n")
            values = client.stats(b"stats-job %b" % found.split()[1])
            assert (values["pri"], values["ttr"]) == (pri, ttr)


def test_pages_follow_operations(page: Tab, server: Server, url: str, jobs: Jobs) -> None:
    """Operations of others change a page. There is no button for what cannot be done."""
    with server.connect() as client:
        client.ask(b"use late\r\n")
        late = client.put(b"late")
        client.bury(late)
    page.open("/s/0/jobs?tube=late&state=buried")
    page.page.get_by_role("link", name=str(late)).wait_for()
    page.page.wait_for_selector(".connection:text-is('Live')")
    visitor_of(url).run("kick", tube="late", count=1)
    page.wait_for_text("No job matches")
    go(page, f"/s/0/jobs/{late}")
    button(page, "Delete").wait_for()
    go(page, f"/s/0/jobs/{jobs.reserved}")
    page.wait_for_text(f"Job {jobs.reserved} reserved")
    assert button(page, "Delete").count() == button(page, "Bury").count() == 0
    go(page, "/audit")
    page.page.locator(".badge-neutral:text-is('begun')").first.wait_for()
    go(page, "/s/0/tubes/late")
    button(page, "Kick").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_text("Make 0 delayed jobs").wait_for()
    assert dialog.get_by_role("button", name="Kick").is_disabled()

    lists = [[OPERATION]]

    def answer(route: Route) -> None:
        data = json.dumps({"operations": lists.pop() if lists else []})
        body = f"retry: 500\n\nevent: operations\ndata: {data}\n\n"
        route.fulfill(body=body, content_type="text/event-stream")

    page.page.route("**/live", answer)
    page.open("/s/0")
    running = page.page.locator(".nav-link", has_text="Operations").locator(".nav-count")
    running.wait_for()
    running.wait_for(state="detached")  # the console was restarted


def test_all_jobs_that_match_a_filter(page: Tab, server: Server) -> None:
    """They are more than a page shows."""
    with in_tube(server.connect(), b"matching") as client:
        for number in range(120):
            client.put(b"other" if number % 12 == 0 else b"this one")
        page.open("/s/0/jobs?tube=matching&body=this")
        page.page.get_by_label("All jobs of this page").check()
        page.wait_for_text("100 jobs chosen")
        button(page, "Choose all that match").click()
        page.wait_for_text("All jobs that match are chosen")
        page.page.locator("tbody input").first.click()
        page.wait_for_text("99 jobs chosen")
        assert button(page, "Choose all that match").count() == 0
        page.page.locator("tbody input").first.click()
        button(page, "Choose all that match").click()
        assert page.violations() == []
        button(page, "Bury").click()
        page.page.get_by_role("dialog", name="Bury all jobs of matching that match").wait_for()
        wait_for_answer(page, "Bury 110 jobs of matching that match body 'this'")
        submit(page, "Bury")
        page.page.get_by_text("Buried 110 jobs of matching").wait_for()
        assert tube_count(client, b"matching", "buried") == 110
        page.wait_for_text("buried")
        assert not page.page.get_by_role("group", name="Chosen jobs").is_visible()
        page.open("/s/0/jobs?tube=matching")
        page.page.get_by_label("All jobs of this page").check()
        button(page, "Choose all of the tube").click()
        button(page, "Delete").click()
        page.page.get_by_role("dialog", name="Delete all jobs of matching").wait_for()
        wait_for_answer(page, "Delete 120 jobs of matching")
        page.page.get_by_label("Type the name of the tube").fill("matching")
        submit(page, "Delete")
        assert tube_count(client, b"matching", "ready") == 0


def test_all_jobs_of_a_connection_count(page: Tab, server: Server) -> None:
    """The server lists only the first ones."""
    with in_tube(server.connect(), b"many") as client:
        for _ in range(20):
            client.put()
            client.reserve()
        with in_tube(server.connect(), b"none") as waiting:
            waiting.send(b"reserve\r\n")
            page.open("/s/0/connections?tube=many")
            page.wait_for_text("and 12 more")
            go(page, "/s/0/connections?tube=none")
            page.wait_for_text("no limit")


def test_servers_and_users(browser: Browser, server: Server, tmp_path: Path) -> None:
    """The audit log keeps the server, and an unknown user of a proxy gets no login."""
    addresses = ("--addr", f"127.0.0.1:{server.port}") * 2
    users = ("--users", str(users_file(tmp_path)), "--user-header", "X-User")
    with console(*addresses, *users) as url:
        with tab(browser, url, headers={"X-User": "admin"}) as opened:
            opened.open("/s/0")
            opened.page.locator(".server-switch select").select_option("1")
            opened.page.wait_for_url("**/s/1")
            opened.page.get_by_role("link", name="Audit log").click()
            opened.page.wait_for_url("**/audit")
            opened.page.get_by_role("link", name="Tubes").click()
            opened.page.wait_for_url("**/s/1/tubes")
            opened.page.get_by_role("link", name="default").click()
            button(opened, "Put").click()
            opened.page.get_by_role("dialog").wait_for()
            opened.page.evaluate("history.go(-4)")
            opened.page.wait_for_url("**/s/0")
            opened.page.get_by_role("dialog").wait_for(state="detached")
        with tab(browser, url, headers={"X-User": "nobody"}) as opened:
            opened.open("/s/0")
            opened.wait_for_text("Your user has no access")
            assert opened.page.locator("#password").count() == 0


DIALOGS = ("Put", "Kick", "Pause", "Move", "Import", "Truncate")


@pytest.mark.parametrize("dark", [False, True])
def test_dialogs_and_the_login_have_no_violation(
    browser: Browser, url: str, server: Server, tmp_path: Path, dark: bool
) -> None:
    with tab(browser, url, dark=dark) as page:
        page.open("/s/0/tubes/mails")
        for name in DIALOGS:
            button(page, name).click()
            page.page.wait_for_selector("dialog[open] .dry-count, dialog[open] .dry-run .faint")
            assert page.violations() == [], name
            page.page.keyboard.press("Escape")
            page.page.wait_for_selector("dialog", state="detached")
        for key in ("?", "ControlOrMeta+k"):
            page.page.keyboard.press(key)
            page.page.wait_for_selector("dialog[open]")
            assert page.violations() == [], key
            page.page.keyboard.press("Escape")
            page.page.wait_for_selector("dialog", state="detached")
    users = ("--users", str(users_file(tmp_path)))
    with (
        console("--addr", f"127.0.0.1:{server.port}", *users) as closed,
        tab(browser, closed, dark=dark) as page,
    ):
        page.open("/")
        assert page.violations() == []
        page.page.fill("#user", "nobody")
        page.page.fill("#password", "wrong")
        button(page, "Log in").click()
        page.page.wait_for_selector("[role=alert]")
        assert page.violations() == []


def test_jobs_to_and_from_a_file(page: Tab, server: Server, tmp_path: Path) -> None:
    with server.connect() as client:
        in_tube(client, b"filed")
        client.put(b"one")
        client.bury(client.put(b"two"))
    page.open("/s/0/tubes/filed")
    with page.page.expect_download() as found:
        button(page, "Export").click()
    assert found.value.suggested_filename == "filed.jsonl"
    file = tmp_path / "jobs.jsonl"
    found.value.save_as(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["state"], one["body"]) for one in lines] == [("ready", "one"), ("buried", "two")]

    page.page.route("**/jobs/export?*", lambda route: route.fulfill(status=503, json=BUSY))
    button(page, "Export").click()
    page.page.locator(".toast").filter(has_text=BUSY["error"]).wait_for()

    button(page, "Import").click()
    latin = {"name": "latin", "mimeType": "text/plain", "buffer": '{"body": "ä"}'.encode("latin-1")}
    large = {"name": "large", "mimeType": "text/plain", "buffer": b"{}\n" * 700_000}
    for wrong, reason in ((latin, "not in UTF-8"), (large, "more than 2 MB")):
        page.page.set_input_files("#field-lines", files=[wrong])
        page.page.locator("dialog [role=alert]").filter(has_text=reason).wait_for()
    page.page.set_input_files("#field-lines", file)
    wait_for_answer(page, "Put 2 jobs into filed")
    page.page.fill("#field-skip", "1")
    wait_for_answer(page, "Put 1 job into filed")
    submit(page, "Import")
    with server.connect() as client:
        assert eventually(lambda: tube_count(client, b"filed", "buried") == 2)

        button(page, "Move").click()
        page.page.fill("#field-to", "filed-elsewhere")
        page.page.get_by_role("checkbox", name="buried").check()
        page.page.fill("#field-limit", "2")
        wait_for_answer(page, "Move 2 jobs from filed to filed-elsewhere")
        submit(page, "Move")
        assert eventually(lambda: tube_count(client, b"filed", "ready") == 0)
        assert tube_count(client, b"filed", "buried") == 1

        client.ask(b"use filed\r\n")
        client.put(b"three")
        button(page, "Truncate").click()
        page.page.get_by_role("checkbox", name="ready").uncheck()
        wait_for_answer(page, "Delete 1 job of filed; ready and reserved jobs stay")
        submit(page, "Truncate")
        assert eventually(lambda: tube_count(client, b"filed", "buried") == 0)
        assert tube_count(client, b"filed", "ready") == 1


def wait_for_answer(page: Tab, text: str) -> None:
    """Wait for the answer of a dry run."""
    page.page.locator(".dry-count").filter(has_text=text).wait_for()


def submit(page: Tab, name: str) -> None:
    page.page.locator("dialog").get_by_role("button", name=name, exact=True).click()
    page.page.wait_for_selector("dialog", state="detached")


def tube_count(client: Client, tube: bytes, state: str) -> int:
    return int(client.stats(b"stats-tube %b" % tube)[f"current-jobs-{state}"])
