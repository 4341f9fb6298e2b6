"""A console beside a server, and a real browser that looks at it."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from servers import free_port

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 20.0
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
# Without the background services, which look for hosts elsewhere.
OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


@contextlib.contextmanager
def console(*options: str) -> Iterator[str]:
    """Start `beanstalkd-py console` with these options; yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "beanstalkd_py", "console", "--listen"]
    with subprocess.Popen(
        [*command, f"127.0.0.1:{port}", *options], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line == f"beanstalkd-py: serving {url}/\n", line + process.stderr.read()
            yield url
        finally:
            process.terminate()
            process.wait(START_S)


@contextlib.contextmanager
def chromium(*options: str) -> Iterator[Browser]:
    """Fails without Chromium."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program is not None, "no Chromium is installed; its package is chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*OPTIONS, *options])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of the console. It records what a page must never do."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("request", self._requested)

    def _logged(self, message: ConsoleMessage) -> None:
        # Chromium logs each answer of 400 and above.
        if message.type in ("error", "warning") and "the server responded" not in message.text:
            self.faults.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.faults.append(f"request to {request.url}")

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main h1")

    def violations(self) -> list[str]:
        """Return what axe finds, a line for each element."""
        found = Axe().run(self.page, options={"runOnly": {"type": "tag", "values": WCAG}})
        return [
            f"{one['id']}: {node['html'][:120]}: {node.get('failureSummary', '')[:200]}"
            for one in found.response["violations"]
            for node in one["nodes"]
        ]

    def text(self) -> str:
        return re.sub(r"\s+", " ", self.page.inner_text("main"))

    def wait_for_text(self, text: str, seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.text():
            assert time.monotonic() < end, f"no {text!r} in: {self.text()[:2000]}"
            self.page.wait_for_timeout(50)


@contextlib.contextmanager
def tab(
    browser: Browser,
    url: str,
    *,
    dark: bool = False,
    width: int = 1280,
    height: int = 800,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Tab]:
    """Open a tab of its own; its page must not log, throw, or ask another origin."""
    context = browser.new_context(
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": height},
        extra_http_headers=dict(headers or {}),
        ignore_https_errors=True,
    )
    opened = Tab(context.new_page(), url)
    try:
        yield opened
        assert opened.faults == []
    finally:
        context.close()
