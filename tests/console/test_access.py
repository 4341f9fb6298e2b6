"""Who reaches a console and what they may do: logins, roles, and attacks by sites and clients."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from console.consoles import (
    PASSWORD,
    ROLES,
    ConsoleProcess,
    Visitor,
    command,
    console,
    users_file,
)
from processes import eventually
from servers import Server, free_port, ours
from wire import in_tube

from beanstalkd_py import errors
from beanstalkd_py.console.access import accounts, browser_checks, sessions
from beanstalkd_py.console.access.accounts import Account, Role
from beanstalkd_py.console.application import ENDPOINTS
from beanstalkd_py.console.operations.kinds import KINDS

ENDPOINT_ROLES = {
    "GET live": "read",
    "GET samples": "read",
    "GET tubes/<tube:tube>": "read",
    "GET jobs": "read",
    "GET jobs/<int:job>": "read",
    "GET jobs/export": "read",
    "GET connections": "read",
    "GET dead-letters": "read",
    "GET history/topics": "read",
    "GET history/messages": "read",
    "GET schedules": "read",
    "GET policies": "read",
    "GET binlog": "read",
    "GET replication": "read",
    "GET doctor": "read",
    "POST doctor": "read",
    "GET operations": "read",
    "POST operations": "operate",
    "POST operations/<int:number>/stop": "operate",
}
"""A new endpoint needs a decision here."""

KIND_ROLES = {
    "kick": "operate",
    "delete": "operate",
    "bury": "operate",
    "redrive": "operate",
    "replay": "operate",
    "undelete": "operate",
    "pause": "operate",
    "put": "operate",
    "move": "operate",
    "import": "operate",
    "schedule-run": "operate",
    "truncate": "admin",
    "drain": "admin",
    "compact": "admin",
    "reload": "admin",
    "policy-set": "admin",
    "policy-unset": "admin",
}
"""A new kind of operation needs a decision here."""


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return users_file(tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module")
def open_console(server: Server) -> Iterator[ConsoleProcess]:
    """A console without logins, where everybody is an admin."""
    with console(server) as running:
        yield running


@pytest.fixture(scope="module")
def closed_console(server: Server, users: Path) -> Iterator[ConsoleProcess]:
    """A console with logins."""
    with console(server, args=("--users", users)) as running:
        yield running


@pytest.fixture(scope="module")
def visitors(closed_console: ConsoleProcess) -> dict[str, Visitor]:
    return {role: closed_console.user(role) for role in ROLES}


# --- roles ---------------------------------------------------------------------------------------


def test_every_endpoint_and_kind_has_a_decision() -> None:
    endpoints = {f"{one.method} {one.path}": one.role.name.lower() for one in ENDPOINTS}
    assert endpoints == ENDPOINT_ROLES
    assert {name: kind.role.name.lower() for name, kind in KINDS.items()} == KIND_ROLES


def _path(endpoint: str) -> tuple[str, str]:
    method, path = endpoint.split()
    for part in ("<tube:tube>", "<int:job>", "<int:number>"):
        path = path.replace(part, "default" if "tube" in part else "999999")
    return method, f"/api/s/0/{path}"


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINT_ROLES if not one.endswith("live")])
def test_an_endpoint_by_role(visitors: dict[str, Visitor], endpoint: str) -> None:
    method, path = _path(endpoint)
    body = b"{}" if method == "POST" else None
    headers = {"Content-Type": "application/json"}
    least = ROLES.index(ENDPOINT_ROLES[endpoint])
    for number, role in enumerate(ROLES):
        status = visitors[role].request(method, path, body, headers).status
        assert (status == 403) == (number < least), (role, status)
        assert status not in (401, 500)


@pytest.mark.costly
def test_live_by_role(visitors: dict[str, Visitor]) -> None:
    for visitor in visitors.values():
        with visitor.events() as events:
            assert events.until("survey")["tubes"]


@pytest.mark.parametrize("kind", KIND_ROLES)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_kind_by_role(visitors: dict[str, Visitor], kind: str, dry_run: bool) -> None:
    least = ROLES.index(KIND_ROLES[kind])
    # An unknown argument, so that nobody changes anything.
    values = {"kind": kind, "dry_run": dry_run, "unknown-argument": 1}
    for number, role in enumerate(ROLES):
        answer = visitors[role].post("s/0/operations", values)
        assert answer.status == (403 if number < least else 400), answer


@pytest.mark.parametrize("endpoint", ENDPOINT_ROLES)
def test_nothing_without_a_login(closed_console: ConsoleProcess, endpoint: str) -> None:
    method, path = _path(endpoint)
    answer = closed_console.visitor().request(method, path, b"{}" if method == "POST" else None)
    assert answer.status == 401
    assert closed_console.visitor().get("audit").status == 401


def test_a_session_without_a_login_shows_nothing(closed_console: ConsoleProcess) -> None:
    session = closed_console.visitor().ok("session")
    assert session == {"user": None, "role": None, "login": True, "version": "", "servers": []}


def test_sessions_of_roles(visitors: dict[str, Visitor]) -> None:
    for role in ROLES:
        session = visitors[role].ok("session")
        assert (session["user"], session["role"], session["login"]) == (role, role, True)
        assert len(session["servers"]) == 1


@pytest.mark.costly
def test_a_console_without_users_has_the_default_role(server: Server) -> None:
    with console(server, args=("--role", "read")) as running:
        session = running.visitor().ok("session")
        assert (session["user"], session["role"], session["login"]) == (None, "read", False)
        assert running.visitor().post("s/0/operations", {"kind": "kick"}).status == 403


# --- logins and sessions -------------------------------------------------------------------------


def test_a_login_and_its_cookie(closed_console: ConsoleProcess) -> None:
    visitor = closed_console.visitor()
    answer = visitor.login("operate")
    assert answer.json["user"] == "operate"
    cookie = answer.headers["Set-Cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert part in cookie
    assert visitor.ok("session")["user"] == "operate"


@pytest.mark.costly
def test_a_cookie_over_https_is_secure(server: Server, users: Path) -> None:
    with console(server, args=("--users", users, "--https")) as running:
        assert "Secure" in running.visitor().login("read").headers["Set-Cookie"]


def test_a_logout_ends_the_session(closed_console: ConsoleProcess) -> None:
    visitor = closed_console.user("read")
    cookie = visitor.headers["Cookie"]
    assert visitor.post("logout", {}).status == 200
    again = Visitor(closed_console.port, {"Cookie": cookie})
    assert again.get("audit").status == 401
    assert again.ok("session")["user"] is None


@pytest.mark.costly
def test_a_logout_ends_the_events(closed_console: ConsoleProcess) -> None:
    visitor = closed_console.user("read")
    with visitor.events() as events:
        events.until("survey")
        assert visitor.post("logout", {}).status == 200
        with pytest.raises(AssertionError, match="have ended"):
            for _ in range(3):
                events.until("survey")


@pytest.mark.parametrize("cookie", ["", "x", "beanstalkd-console=", "beanstalkd-console=guess"])
def test_invalid_cookies(closed_console: ConsoleProcess, cookie: str) -> None:
    assert Visitor(closed_console.port, {"Cookie": cookie}).get("audit").status == 401


@pytest.mark.costly
def test_wrong_logins(server: Server, users: Path) -> None:
    with console(server, args=("--users", users)) as running:
        visitor = running.visitor()
        assert visitor.post("login", {"user": "read", "password": "wrong"}).status == 401
        assert visitor.post("login", {"user": "nobody", "password": PASSWORD}).status == 401
        assert visitor.post("login", {"user": "READ", "password": PASSWORD}).status == 401
        for values in ({}, {"user": "read"}, {"user": 1, "password": []}, [], "x", None):
            assert visitor.post("login", values).status == 400
        for length, status in ((2000, 400), (100_000, 413)):
            long = {"user": "read", "password": "x" * length}
            assert visitor.post("login", long).status == status
        assert visitor.login("read").status == 200


def test_a_console_without_users_has_no_login(open_console: ConsoleProcess) -> None:
    answer = open_console.visitor().post("login", {"user": "a", "password": "b"})
    assert answer.status == 409


def test_sessions_end() -> None:
    kept, account = sessions.Sessions(), Account("ann", Role.READ, "")
    token = kept.begin(account, 0.0)
    assert kept.account(token, sessions.IDLE_S) == account
    assert kept.account(token, 2 * sessions.IDLE_S + 1) is None
    assert kept.account(token, 0.0) is None, "an ended session stays ended"
    token, now = kept.begin(account, 0.0), 0.0
    while now < sessions.LONGEST_S:
        assert kept.account(token, now) == account
        now += sessions.IDLE_S / 2
    assert kept.account(token, now + 1) is None


def test_the_number_of_sessions_is_bounded() -> None:
    kept, account = sessions.Sessions(), Account("ann", Role.READ, "")
    tokens = [kept.begin(account, 0.0) for _ in range(sessions.MOST_SESSIONS)]
    assert kept.account(tokens[0], 1.0) == account  # so the second one was used least recently
    kept.begin(account, 1.0)
    assert kept.account(tokens[0], 1.0) == account
    assert kept.account(tokens[1], 1.0) is None
    assert len(set(tokens)) == len(tokens)
    assert all(len(token) >= 32 for token in tokens)


# --- brute force ---------------------------------------------------------------------------------


def test_pauses_by_address_and_by_user() -> None:
    limit = sessions.LoginLimit()
    for _ in range(sessions.FREE_FAILURES):
        assert limit.wait_s(["address a", "user u"], 0.0) <= 0
        limit.failed(["address a", "user u"], 0.0)
    assert limit.wait_s(["address a", "user other"], 0.0) == sessions.FIRST_PAUSE_S
    assert limit.wait_s(["address other", "user u"], 0.0) == sessions.FIRST_PAUSE_S
    assert limit.wait_s(["address other", "user other"], 0.0) <= 0
    for _ in range(30):
        limit.failed(["user u"], 0.0)
    assert limit.wait_s(["user u"], 0.0) == sessions.LONGEST_PAUSE_S
    limit.succeeded(["user u"])
    assert limit.wait_s(["user u"], 0.0) <= 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_networks_of_addresses(address: str, network: str) -> None:
    """A client of IPv6 has 2**64 addresses."""
    assert sessions.network_of(address) == network


def test_the_memory_of_failures_is_bounded() -> None:
    limit = sessions.LoginLimit()
    for number in range(sessions.MOST_KEYS + 100):
        limit.failed([f"user {number}"], 0.0)
    assert len(limit._failures) == sessions.MOST_KEYS


@pytest.mark.costly
def test_brute_force_is_limited(server: Server, users: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with console(server, args=("--users", users, "--audit-log", log)) as running:

        def attempt(number: int) -> tuple[int, str]:
            values = {"user": "admin", "password": f"guess {number}"}
            answer = running.visitor().post("login", values)
            return answer.status, answer.headers.get("Retry-After", "")

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(attempt, range(100)))
        statuses = [status for status, _ in answers]
        assert set(statuses) == {401, 429}
        assert statuses.count(401) <= sessions.FREE_FAILURES + 2, "concurrent attempts count, too"
        assert all(int(retry) > 0 for status, retry in answers if status == 429)
        # The right password has to wait as well, else its reply would differ. Each guess that is
        # not refused doubles the pause; 2 s are enough for what follows.
        assert eventually(lambda: int(attempt(0)[1] or 0) > 2, 30)
        assert running.visitor().login("admin").status == 429
        assert running.visitor().login("read").status == 429
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(entries) <= sessions.FREE_FAILURES + 5, "refused attempts do not fill the disk"
    assert all(one["action"] == "login" and one["user"] == "admin" for one in entries)


@pytest.mark.costly
def test_unknown_users_take_as_long_as_known_ones(tmp_path: Path) -> None:
    line = accounts.account_line("ann", Role.READ, PASSWORD)
    (tmp_path / "users").write_text(line + "\n")
    known = accounts.load_accounts(tmp_path / "users")

    def median_s(name: str) -> float:
        took = []
        for _ in range(5):
            begun = time.thread_time()
            assert accounts.verify(known, name, "wrong") is None
            took.append(time.thread_time() - begun)
        return statistics.median(took)

    assert 0.5 < median_s("ann") / median_s("nobody") < 2


@pytest.mark.parametrize("password", ["", "wrong", PASSWORD + " ", "\0"])
def test_passwords_that_do_not_match(users: Path, password: str) -> None:
    known = accounts.load_accounts(users)
    assert accounts.verify(known, "read", password) is None
    assert accounts.verify(known, "nobody", password) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann read",
        "ann boss pbkdf2:sha256:1$a$00",
        "ann read pbkdf2:sha256:1$a$00\nann read pbkdf2:sha256:1$a$00",
        "ann read plain-password",
        "ann read md9$a$00",
        "ann read pbkdf2:nonsense:1$a$00",
        "ann read scrypt:3:8:1$a$00",
    ],
)
def test_invalid_users(tmp_path: Path, text: str) -> None:
    (tmp_path / "users").write_text(text)
    with pytest.raises(errors.UsageError):
        accounts.load_accounts(tmp_path / "users")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "-a", "a" * 65, "ä"])
def test_invalid_user_names(name: str) -> None:
    with pytest.raises(errors.ToolUsageError):
        accounts.account_line(name, Role.READ, PASSWORD)


def test_passwords_have_a_length() -> None:
    for password in ("short", "x" * 2000):
        with pytest.raises(errors.ToolUsageError):
            accounts.account_line("ann", Role.READ, password)


# --- other sites ---------------------------------------------------------------------------------

ORIGIN = "http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("site", "origin", "status"),
    [
        ("same-origin", None, 200),
        ("same-origin", ORIGIN, 200),
        ("cross-site", None, 403),
        ("cross-site", ORIGIN, 403),
        ("same-site", ORIGIN, 403),
        ("none", None, 403),
        ("", ORIGIN, 403),
        ("Same-Origin", None, 403),
        (None, None, 403),
        (None, ORIGIN, 200),
        (None, "null", 403),
        (None, "", 403),
        (None, "http://127.0.0.1:1", 403),
        (None, "http://127.0.0.1", 403),
        (None, "http://localhost:{port}", 403),
        (None, "http://evil.example:{port}", 403),
        (None, "http://127.0.0.1:{port}.evil.example", 403),
        (None, "http://[", 403),
    ],
)
def test_changes_from_other_sites(
    open_console: ConsoleProcess, site: str | None, origin: str | None, status: int
) -> None:
    origin = origin.format(port=open_console.port) if origin is not None else None
    values = {"kind": "put", "tube": "other-site", "body": "x", "dry_run": True}
    headers = {"Sec-Fetch-Site": site, "Origin": origin}
    assert open_console.visitor().post("s/0/operations", values, headers).status == status


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_cannot_begin_work_here(open_console: ConsoleProcess, site: str) -> None:
    visitor = open_console.visitor(Sec_Fetch_Site=site)
    assert visitor.get("s/0/doctor").status == 403
    assert visitor.get("session").status == 403
    # A link of another page may lead here.
    assert visitor.request("GET", "/s/0/tubes").status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_forms_change_nothing(open_console: ConsoleProcess, kind: str | None) -> None:
    values = {"kind": "put", "tube": "form", "body": "x", "dry_run": True}
    answer = open_console.visitor().post("s/0/operations", values, {"Content-Type": kind})
    assert answer.status == 415


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("127.0.0.1", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("[::1]:{port}", 200),
        ("console.example", 200),
        ("Console.Example:443", 200),
        ("localhost.:{port}", 421),
        ("evil.example:{port}", 421),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example@localhost", 421),
        ("localhost/evil.example", 421),
        ("localhost?evil.example", 421),
        ("localhost:{port}@evil.example", 421),
        ("127.0.0.2", 421),
        ("2130706433", 421),
        ("[::ffff:127.0.0.1]", 421),
        ("[::1", 421),
        ("", 421),
        (None, 421),
    ],
)
def test_names_of_hosts(named_console: ConsoleProcess, host: str | None, status: int) -> None:
    host = host.format(port=named_console.port) if host is not None else None
    answer = named_console.visitor().request("GET", "/api/session", headers={"Host": host})
    assert answer.status == status or (host is None and answer.status == 400)
    if host is not None:
        page = named_console.visitor().request("GET", "/", headers={"Host": host})
        assert page.status == status


@pytest.fixture(scope="module")
def named_console(server: Server) -> Iterator[ConsoleProcess]:
    with console(server, args=("--host", "console.example")) as running:
        yield running


# --- proxies and listening -----------------------------------------------------------------------


@pytest.mark.costly
def test_the_user_header_of_a_proxy(server: Server, users: Path) -> None:
    with console(server, args=("--users", users, "--user-header", "X-User")) as running:
        for role in ROLES:
            session = running.visitor(X_User=role).ok("session")
            assert (session["user"], session["role"], session["login"]) == (role, role, False)
        for name in ("", "nobody", "admin,read", "admin "[:0]):
            assert running.visitor(X_User=name).get("audit").status == 401
        assert running.visitor().get("audit").status == 401
        underscore = Visitor(running.port, {"X_User": "admin"})
        assert underscore.get("audit").status == 401, "a proxy does not remove this header"
        answer = running.visitor(X_User="read").post("s/0/operations", {"kind": "kick"})
        assert answer.status == 403


def _refused(*args: str | Path) -> str:
    done = subprocess.run(command(*args), capture_output=True, timeout=30, check=False)
    assert done.returncode != 0
    return done.stderr.decode()


@pytest.mark.costly
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "127.0.0.1.evil.example"])
def test_other_machines_need_a_login(host: str) -> None:
    text = _refused("--listen", f"{host}:{free_port()}")
    assert "--users" in text, text


@pytest.mark.costly
def test_combinations_of_options_that_are_refused(users: Path, tmp_path: Path) -> None:
    port = free_port()
    assert "--users" in _refused("--listen", f"127.0.0.1:{port}", "--user-header", "X-User")
    public = ("--listen", f"0.0.0.0:{port}", "--users", users)
    assert "--user-header" in _refused(*public, "--user-header", "X-User")
    assert "cannot read users" in _refused("--users", tmp_path / "missing")
    assert "audit log" in _refused("--audit-log", tmp_path / "missing" / "log")


def test_loopback_addresses() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        assert browser_checks.is_loopback(host)
    for host in ("0.0.0.0", "::", "127.0.0.1.evil.example", "127.evil.example", "10.0.0.1", ""):
        assert not browser_checks.is_loopback(host)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/static/../application.py",
        "/static/%2e%2e/application.py",
        "/static/..%2fapplication.py",
        "/static//etc/passwd",
        "/static/%2Fetc%2Fpasswd",
        "/static/index.html%00.js",
        "/static/./index.html",
        "/static/",
        "/static/\\..\\application.py",
        "/static/../../../../../../etc/passwd",
    ],
)
def test_only_files_of_the_pages(open_console: ConsoleProcess, path: str) -> None:
    assert open_console.visitor().request("GET", path).status == 404


@pytest.mark.parametrize(
    "path", ["/", "/s/0/tubes/mails", "/s/0/tubes/a%2Fb", "/login", "//x", "/api"]
)
def test_pages(open_console: ConsoleProcess, path: str) -> None:
    answer = open_console.visitor().request("GET", path)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    tag = answer.headers["ETag"]
    again = open_console.visitor().request("GET", path, headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/", "/static/index.html", "/static/x", "/api/session", "/api/x"])
def test_headers_of_each_response(open_console: ConsoleProcess, path: str) -> None:
    headers = open_console.visitor().request("GET", path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    if path.startswith("/api/"):
        assert headers["Cache-Control"] == "no-store"


# --- methods and bodies --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"])
@pytest.mark.parametrize("path", ["/", "/static/index.html", "/api/session", "/api/s/0/operations"])
def test_methods(open_console: ConsoleProcess, method: str, path: str) -> None:
    assert open_console.visitor().request(method, path, b"{}").status == 405


def test_get_and_post_are_not_exchanged(open_console: ConsoleProcess) -> None:
    visitor = open_console.visitor()
    assert visitor.get("login").status == 405
    assert visitor.get("logout").status == 405
    assert visitor.get("s/0/operations/1/stop").status == 405
    assert visitor.post("session", {}).status == 405
    assert visitor.post("s/0/jobs", {}).status == 405
    assert visitor.request("HEAD", "/api/session").body == b""
    assert visitor.request("HEAD", "/api/s/0/live").body == b""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"{",
        b"\xff",
        b'{"kind": "kick"} x',
        b'{"kind": null}',
        b'{"kind": ["kick"]}',
        b'{"kind": {}}',
        b'{"kind": "no-such-kind"}',
        b"[" * 1_000_000,
        b'{"a":' * 500_000,
        b'{"kind": "kick", "tube": "x", "count": ' + b"9" * 10_000 + b"}",
        b'{"kind": "kick", "tube": "x", "count": NaN}',
        b'{"kind": "put", "tube": "x", "body": "b", "pri": Infinity}',
        b'{"kind": "put", "tube": "x", "body": "b", "ttr": 1e999}',
        b'{"kind": "kick", "tube": "x", "count": 1, "unknown": NaN}',
        b'{"kind": "move", "tube": "x", "to": "y", "rate": NaN}',
        b'{"kind": "move", "tube": "x", "to": "y", "rate": 1e999}',
    ],
)
def test_hostile_bodies(open_console: ConsoleProcess, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    visitor = open_console.visitor()
    answer = visitor.request("POST", "/api/s/0/operations", body, headers)
    assert answer.status == 400, answer
    assert visitor.ok("s/0/operations")["operations"] == []


HOSTILE_VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    2**32,
    2**64,
    10**300,
    "",
    "1",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
)


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        ("kick", {"tube": "hostile", "count": 1}),
        ("delete", {"ids": [1]}),
        ("bury", {"ids": [1]}),
        ("redrive", {"tube": "hostile", "ids": [1], "rate": 1}),
        ("pause", {"tube": "hostile", "seconds": 0}),
        ("put", {"tube": "hostile", "body": "x", "pri": 1, "delay": 0, "ttr": 1}),
        (
            "move",
            {"tube": "hostile", "to": "other", "states": ["ready"], "limit": 1, "rate": 1},
        ),
        ("import", {"tube": "hostile", "lines": '{"body": "x"}', "skip": 0}),
        ("truncate", {"tube": "hostile", "states": ["ready"]}),
        ("drain", {"on": False}),
        ("policy-set", {"policy": {"tube": "hostile"}}),
        ("policy-unset", {"pattern": "hostile"}),
        ("schedule-run", {"name": "hostile"}),
        (
            "replay",
            {"tube": "hostile", "from": 0, "to": 1, "body": "x", "where": "pri>1", "rate": 1},
        ),
    ],
)
def test_hostile_arguments(
    open_console: ConsoleProcess, server: Server, kind: str, valid: dict[str, object]
) -> None:
    """Wrong types and numbers out of range are errors of the client, in dry runs and in runs."""
    with in_tube(server.connect(), b"hostile") as client:
        client.ask(b"put 0 0 60 1\r\nx\r\n")
    visitor = open_console.visitor()
    for name in valid:
        for value in HOSTILE_VALUES:
            values = {**valid, name: value, "kind": kind, "dry_run": True}
            answer = visitor.post("s/0/operations", values)
            assert answer.status in (200, 400, 404, 409), (values, answer)
            if answer.status == 200:
                assert answer.json["text"]
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    for name in valid:
        answer = visitor.post("s/0/operations", {**valid, name: deep, "kind": kind})
        assert answer.status == 400, (name, answer.status)
    if kind == "policy-set":
        nested = {"policy": {"tube": "x", "max-jobs": deep}}
        assert visitor.post("s/0/operations", {**nested, "kind": kind}).status == 400


HOSTILE_QUERIES = (
    "",
    "-1",
    "1.5",
    "nan",
    "inf",
    "1e999",
    "9" * 5000,
    "0x1",
    "\u0661",
    "%00",
    "a" * 2000,
)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("s/0/jobs", ("tube", "state", "after", "limit", "min_age", "max_age", "min_pri", "body")),
        ("s/0/connections", ("tube", "limit")),
        ("s/0/dead-letters", ("tube",)),
        ("s/0/history/messages", ("tube", "key", "from", "to", "event", "limit", "before")),
        ("audit", ("before",)),
    ],
)
def test_hostile_queries(open_console: ConsoleProcess, path: str, names: tuple[str, ...]) -> None:
    for name in names:
        for value in HOSTILE_QUERIES:
            answer = open_console.visitor().get(path, **{"tube": "default", name: value})
            assert answer.status in (200, 400, 404, 409), (name, value, answer)


@pytest.mark.parametrize(
    "path",
    [
        "s/1/jobs",
        "s/-1/jobs",
        "s/x/jobs",
        "s/" + "9" * 5000 + "/jobs",
        "s/0/jobs/" + "9" * 5000,
        "s/0/jobs/18446744073709551616",
        "s/0/jobs/0",
        "s/0/jobs/x",
        "s/0/tubes/" + "a" * 201,
        "s/0/tubes/-a",
        "s/0/tubes/a%20b",
        "s/0/tubes/a%0d%0ab",
        "s/0/tubes/%00",
        "s/0/tubes/%ff",
        "s/0/",
        "s/0/operations/1/stop/",
        "s/0/nothing",
        "",
    ],
)
def test_addresses_that_do_not_exist(open_console: ConsoleProcess, path: str) -> None:
    assert open_console.visitor().get(path).status in (400, 404, 405)


@pytest.mark.parametrize("path", ["s/0/jobs", "s/0/dead-letters", "s/0/tubes/{}"])
@pytest.mark.parametrize("line_end", ["\r\n", "\n"])
def test_no_commands_in_names_of_tubes(
    closed_console: ConsoleProcess,
    visitors: dict[str, Visitor],
    server: Server,
    path: str,
    line_end: str,
) -> None:
    """A user who may only read sends a command to the server inside of a tube's name."""
    with server.connect() as client:
        before = client.ask(b"stats\r\n")
        for name in ("default", "default any 0 1", "default any"):
            attack = f"{name}{line_end}put 0 0 60 1{line_end}x{line_end}"
            visitors["read"].get(path.format(quote(attack)) if "{" in path else path, tube=attack)
            visitors["read"].get("s/0/jobs", tube="default", state=f"any 0 1{line_end}put 0 0 1 0")
        after = client.ask(b"stats\r\n")

    def puts(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if line.startswith(b"cmd-put:")]

    assert puts(before) == puts(after)


def test_a_body_that_is_too_long(open_console: ConsoleProcess) -> None:
    headers = {"Content-Type": "application/json"}
    body = b'{"kind": "put", "tube": "x", "body": "' + b"x" * (5 << 20) + b'"}'
    with contextlib.suppress(ConnectionError):
        answer = open_console.visitor().request("POST", "/api/s/0/operations", body, headers)
        assert answer.status == 413
    assert open_console.visitor().get("session").status == 200


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999999999999", "1, 2"])
def test_lengths_that_lie(open_console: ConsoleProcess, length: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": length}
    answer = open_console.visitor().request("POST", "/api/s/0/operations", None, headers)
    assert 400 <= answer.status < 500


def test_chunked_bodies_are_bounded(open_console: ConsoleProcess) -> None:
    with socket.create_connection(("127.0.0.1", open_console.port), timeout=20) as sock:
        sock.sendall(
            b"POST /api/s/0/operations HTTP/1.1\r\nHost: localhost\r\n"
            b"Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(80):
                sock.sendall(b"10000\r\n" + b"[" * 0x10000 + b"\r\n")
            sock.sendall(b"0\r\n\r\n")
            assert sock.recv(1000).split()[1] in (b"400", b"413")
    assert open_console.visitor().get("session").status == 200


def _first_line(port: int, request: bytes) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as sock,
        contextlib.suppress(ConnectionError),
    ):
        sock.sendall(request)
        return sock.makefile("rb").readline()
    return b""


def test_headers_are_bounded(open_console: ConsoleProcess) -> None:
    start = b"GET /api/session HTTP/1.1\r\nHost: localhost\r\n"
    for headers in (b"A: " + b"x" * 10_000_000, b"A: x\r\n" * 10_000, b"A" * 100_000):
        line = _first_line(open_console.port, start + headers + b"\r\n\r\n")
        assert not line.startswith(b"HTTP/1.1 200"), line
    line = _first_line(open_console.port, b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n")
    assert not line.startswith(b"HTTP/1.1 200"), line
    for garbage in (
        b"\x16\x03\x01\x02\x00",
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff" * 5000 + b"\r\n",
    ):
        assert b" 200 " not in _first_line(open_console.port, garbage + b"\r\n\r\n")
    assert open_console.visitor().get("session").status == 200


def test_slow_clients_do_not_block_others(open_console: ConsoleProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            sock = socket.create_connection(("127.0.0.1", open_console.port))
            stack.enter_context(sock)
            sock.sendall(b"GET / HTTP/1.1\r\nHost: local"[: number % 30])
        begun = time.monotonic()
        assert open_console.visitor().get("session").status == 200
        assert time.monotonic() - begun < 2


SLOW_BODY = (
    b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
)
SLOW_REQUESTS = (
    b"",
    b"GET",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    SLOW_BODY,
)


def is_closed(port: int, begin: bytes) -> bool:
    """Return whether a client is closed that sends a byte from time to time, or nothing."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(begin)
        sock.settimeout(5)
        end = time.monotonic() + 100
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                if not sock.recv(1000):
                    return True
            with contextlib.suppress(ConnectionError):
                if begin:
                    sock.sendall(b"x")
                continue
            return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_slow_clients_are_closed(open_console: ConsoleProcess) -> None:
    with ThreadPoolExecutor(len(SLOW_REQUESTS)) as pool:
        found = list(pool.map(is_closed, [open_console.port] * len(SLOW_REQUESTS), SLOW_REQUESTS))
    assert found == [True] * len(SLOW_REQUESTS), "the console waits without end"


@pytest.mark.costly
def test_another_server_is_not_reached_by_a_role_of_this_one(users: Path) -> None:
    with ours() as first, ours() as second, console(first, second, args=("--users", users)) as both:
        visitor = both.user("read")
        assert [one["index"] for one in visitor.ok("session")["servers"]] == [0, 1]
        for number in (0, 1):
            assert visitor.get(f"s/{number}/jobs", tube="default").status == 200
        assert visitor.get("s/2/jobs", tube="default").status == 404
