"""The configurations of docs/operations/console.md, with nginx, Caddy and a browser."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import socket
import ssl
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import trustme
from console.browsing import chromium, tab
from console.test_serve import PASSWORD, line_of
from docs.test_console import blocks
from playwright.sync_api import Browser
from processes import eventually
from servers import Server, free_port, ours
from wire import in_tube

from beanstalkd_py.console.access.accounts import Role

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

PROGRAMS = Path(__file__).parents[2] / "build/programs/usr"
NAME = "queue-1.example.com"
CLIENT_CA = "/etc/ssl/certs/console-users.pem"
UPSTREAM = "127.0.0.1:11381"
Proxy = Callable[[Path, int, int, tuple[Path, Path]], list[str | Path]]
"""Writes a configuration into a folder, for two ports and a certificate; returns the command."""
START_S = 20.0
SOON_S = 5.0
"""Less than proxies and pages wait that get numbers late."""


@dataclass
class Site:
    """A console behind a proxy at `port`."""

    port: int
    server: Server
    audit: Path

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A chain of certificates and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    issued = trustme.CA().issue_cert(NAME)
    chain, key = folder / "chain.pem", folder / "key.pem"
    for pem in issued.cert_chain_pems:
        pem.write_to_path(chain, append=True)
    issued.private_key_pem.write_to_path(key)
    return chain, key


@contextlib.contextmanager
def running(command: list[str | Path], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert eventually(lambda: accepts(port) or process.poll() is not None, START_S)
            assert process.poll() is None, process.stderr.read()
            yield
        finally:
            process.terminate()
            process.communicate(timeout=START_S)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def replaced(text: str, replacements: dict[str, str]) -> str:
    """Fails if the page has none of these words any more."""
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(
    folder: Path,
    port: int,
    console_port: int,
    certificate: tuple[Path, Path],
    users_ca: Path | None = None,
) -> list[str | Path]:
    """Write the configuration of the page with other ports; return the command.

    `users_ca` issues client certificates; None is for a login with a password.
    """
    server, names, verification, header = blocks("nginx")
    server = replaced(
        server,
        {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/certs/queue-1.pem": str(certificate[0]),
            "/etc/ssl/private/queue-1.key": str(certificate[1]),
            UPSTREAM: f"127.0.0.1:{console_port}",
        },
    )
    if users_ca:
        verification = replaced(verification, {CLIENT_CA: str(users_ca)})
        server = replaced(
            server, {"location": f"{verification}location", "proxy_buf": f"{header}proxy_buf"}
        )
        server = names + server
    paths = "".join(
        f"{kind}_temp_path {folder / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off;\nuser root;\npid {folder / 'pid'};\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}{server}}}\n"
    )
    return [PROGRAMS / "sbin/nginx", "-p", folder, "-e", "stderr", "-c", file]


def caddy(
    folder: Path, port: int, console_port: int, certificate: tuple[Path, Path]
) -> list[str | Path]:
    """As `nginx`. Caddy would ask a certificate authority for the certificate."""
    (site,) = blocks("text", "reverse_proxy")
    chain, key = certificate
    site = replaced(
        site,
        {
            "example.com {": f"example.com:{port} {{\nbind 127.0.0.1\ntls {chain} {key}",
            UPSTREAM: f"127.0.0.1:{console_port}",
        },
    )
    file = folder / "Caddyfile"
    options = f"admin off\nauto_https disable_redirects\nstorage file_system {folder}"
    file.write_text(f"{{\n{options}\n}}\n{site}")
    return [PROGRAMS / "bin/caddy", "run", "--config", file, "--adapter", "caddyfile"]


@contextlib.contextmanager
def site_of(
    proxy: Proxy, tmp_path: Path, certificate: tuple[Path, Path], *options: str
) -> Iterator[Site]:
    """Run a server with the configuration of the page, and more options, behind a proxy."""
    (text,) = blocks("toml")
    values = tomllib.loads(text)
    assert values["console-host"] == [NAME]
    port, console_port = free_port(), free_port()
    users, audit, folder = tmp_path / "users", tmp_path / "audit", tmp_path / "proxy"
    folder.mkdir()
    users.write_text(line_of("ann", Role.ADMIN))
    new = {values["console-users"]: str(users), UPSTREAM: f"127.0.0.1:{console_port}"}
    config = tmp_path / "options.toml"
    config.write_text(replaced(text, new))
    command = proxy(folder, port, console_port, certificate)
    assert shutil.which(command[0]), f"{command[0]} is missing; run tools/test --browser"
    with (
        ours("--config", config, "--console-audit-log", audit, *options) as server,
        running(command, port),
    ):
        yield Site(port, server, audit)


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, certificate: tuple[Path, Path]
) -> Iterator[Site]:
    with site_of(request.param, tmp_path, certificate) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as opened:
        yield opened


def test_a_browser_behind_a_proxy(browser: Browser, site: Site) -> None:
    """It logs in, sees live numbers at once, and changes jobs; addresses cannot be forged."""
    with (
        tab(browser, site.url, headers={"X-Forwarded-For": "203.0.113.1"}) as opened,
        in_tube(site.server.connect(), b"mails") as client,
    ):
        page = opened.page
        page.goto(site.url + "/s/0/tubes/mails")
        page.fill("#user", "ann")
        page.fill("#password", PASSWORD)
        page.click("text=Log in >> nth=-1")
        page.wait_for_selector("h1:has-text('mails')")
        (cookie,) = page.context.cookies()
        assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        page.goto(site.url + "/s/0")
        page.wait_for_selector("main h1")
        for _ in range(137):
            client.put(b"x")
        opened.wait_for_text(" 137 ", SOON_S)
        body = {"kind": "put", "tube": "mails", "body": "from the page"}
        status = page.evaluate(
            "body => fetch('/api/s/0/operations', {method: 'POST', body: JSON.stringify(body),"
            " headers: {'Content-Type': 'application/json'}}).then(reply => reply.status)",
            body,
        )
        assert status == 200
    lines = [json.loads(line) for line in site.audit.read_text().splitlines()]
    assert {(line["user"], line["address"]) for line in lines} == {("ann", "127.0.0.1")}
    assert "put" in [line["action"] for line in lines]


def test_another_name(site: Site) -> None:
    """A foreign page with a name of its own does not reach the console (DNS rebinding)."""
    context = ssl._create_unverified_context()
    connection = HTTPSConnection("127.0.0.1", site.port, context=context, timeout=START_S)
    with contextlib.closing(connection):
        # Caddy answers requests for names that it does not have itself, during the handshake.
        try:
            connection.request("GET", "/api/session", headers={"Host": "other.example.com"})
            response = connection.getresponse()
            assert (response.status, response.getheader("Server", "")[:5]) == (421, "nginx")
        except ssl.SSLError as error:
            assert "internal error" in str(error)


def test_client_certificates(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """The name is that of a certificate of the authority, whatever header a client sends."""
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "users_ca.pem")
    proxy = functools.partial(nginx, users_ca=tmp_path / "users_ca.pem")
    with site_of(proxy, tmp_path, certificate, "--console-user-header", "X-Remote-User") as site:
        assert session(site, authority, "ann") == ("ann", "admin")
        for issuer in (None, other):
            assert session(site, issuer, "ann") is None
        for name in ("eve", "eve,CN=ann", "ann eve", "ann\n"):
            assert session(site, authority, name) == (None, None), name
        assert session(site, authority, "eve", organization=",CN=ann") == (None, None)


def session(
    site: Site, issuer: trustme.CA | None, name: str, organization: str = "x"
) -> tuple[str | None, str | None] | None:
    """Return user and role of a client with a certificate; None if the proxy refuses it."""
    context = ssl._create_unverified_context()
    if issuer:
        issued = issuer.issue_cert(NAME, common_name=name, organization_name=organization)
        with issued.private_key_and_cert_chain_pem.tempfile() as file:
            context.load_cert_chain(file)
    connection = HTTPSConnection("127.0.0.1", site.port, context=context, timeout=START_S)
    with contextlib.closing(connection):
        headers = {"Host": f"{NAME}:{site.port}", "X-Remote-User": "ann"}
        connection.request("GET", "/api/session", headers=headers)
        response = connection.getresponse()
        if response.status == 400:
            return None
        assert response.status == 200
        values = json.loads(response.read())
        return values["user"], values["role"]
