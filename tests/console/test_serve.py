"""The console of `serve`: its process, its start and end, reload, and refused options."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from cli.commands import BIND, USAGE, refusal
from cli.server.test_addresses import is_world_executable
from cli.server.test_passed_sockets import end, start_passing
from cli.test_imports import added
from processes import alive, children, eventually
from server.metrics.scrape import get as scrape
from servers import Server, free_port, ours
from werkzeug.security import generate_password_hash
from wire import Client

from beanstalkd_py import errors
from beanstalkd_py.cli.server.console_options import check_console_options
from beanstalkd_py.cli.server.serve import serve
from beanstalkd_py.console import settings
from beanstalkd_py.console.access.accounts import Role, account_line, load_accounts, verify
from beanstalkd_py.server.accept.addresses import InetAddress
from beanstalkd_py.server.accept.listeners import bind

PASSWORD = "a long password"
LIMIT_S = 20.0
PIPE_BYTES = 65536
"""What a pipe holds that nobody reads."""


@dataclass
class Console:
    port: int
    cookie: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        return ["--console", f"127.0.0.1:{self.port}"]

    def ask(
        self, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, dict[str, object]]:
        """Send a GET, or a POST with a body; return the status and the JSON of the response."""
        headers = {"Cookie": self.cookie, "Sec-Fetch-Site": "same-origin", **self.headers}
        text = None
        if body is not None:
            text, headers["Content-Type"] = json.dumps(body), "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        with closing(connection):
            connection.request("GET" if body is None else "POST", path, text, headers)
            response = connection.getresponse()
            cookie = response.getheader("Set-Cookie")
            if cookie is not None:
                self.cookie = cookie.partition(";")[0]
            return response.status, json.loads(response.read())

    def wait(self) -> None:
        """Wait until the address is bound; from then on requests wait for the process."""

        def is_bound() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        assert eventually(is_bound, LIMIT_S)

    def session(self) -> dict[str, object]:
        status, values = self.ask("/api/session")
        assert status == 200
        return values

    def servers(self) -> object:
        return self.session()["servers"]

    def log_in(self, user: str, password: str = PASSWORD) -> int:
        return self.ask("/api/login", {"user": user, "password": password})[0]

    def put(self, body: str = "b") -> tuple[int, dict[str, object]]:
        return self.ask("/api/s/0/operations", {"kind": "put", "tube": "a", "body": body})

    def events(self, *names: str) -> dict[str, dict[str, object]]:
        """Return the first event of each of these names."""
        found: dict[str, dict[str, object]] = {}
        with self.stream() as response:
            while set(names) - found.keys():
                name = response.readline().decode().strip().removeprefix("event: ")
                if name in names:
                    found[name] = json.loads(response.readline().removeprefix(b"data: "))
        return found

    def stream(self) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request("GET", "/api/s/0/live", headers={"Cookie": self.cookie})
        return connection.getresponse()


@pytest.fixture
def console() -> Console:
    return Console(free_port())


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(line_of("ann", Role.ADMIN))
    return path


def line_of(name: str, role: Role, password: str = PASSWORD) -> str:
    return account_line(name, role, password) + "\n"


def process_of(server: Server) -> int:
    """Return the console's process once it is the last child."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [pid for pid in children(server.pid) if is_console(pid)]
        return len(found) == 1

    assert eventually(is_there, LIMIT_S), server.stderr()
    return found[0]


def is_console(pid: int) -> bool:
    try:
        return b"beanstalkd_py.server.console.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


# --- a running console ----------------------------------------------------------------------------


def test_it_watches_its_server(console: Console, tmp_path: Path) -> None:
    (tmp_path / "binlog").mkdir()
    folders = ("-b", tmp_path / "binlog", "--history", tmp_path / "history")
    with ours(*folders, *console.options, "--workers", "2") as server:
        with server.connect() as client:
            client.put(b"body")
        assert console.servers() == [{"index": 0, "name": f"127.0.0.1:{server.port}"}]
        found = console.events("hello", "survey")
        features = found["hello"]["features"]
        assert isinstance(features, dict)
        assert features["control"] and features["history"]
        assert isinstance(found["survey"]["workers"], list)
        assert len(found["survey"]["workers"]) == 2
        status, binlog = console.ask("/api/s/0/binlog")
        assert status == 200, binlog
        status, topics = console.ask("/api/s/0/history/topics")
        assert status == 200, topics
        assert "console on http://127.0.0.1:" in server.stderr()
        assert server.complaints() == ""


@pytest.mark.parametrize(
    ("listen", "host"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", None)]
)
def test_a_server_on_all_addresses(console: Console, listen: str, host: str | None) -> None:
    with ours("-l", listen, *console.options) as server:
        if host is not None:
            assert console.servers() == [{"index": 0, "name": f"{host}:{server.port}"}]
        assert console.events("survey")


def test_a_server_on_a_unix_socket(console: Console, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(path))
        passed.listen()
        process = start_passing([passed], *console.options, "--workers", "1")
        console.wait()
        assert console.servers() == [{"index": 0, "name": f"unix:{path}"}]
        assert console.events("survey")
        assert end(process) == ""


def test_passed_sockets(console: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        process = start_passing([one, other], *console.options, "--workers", "1")
        console.wait()
        port = one.getsockname()[1]
        assert console.servers() == [{"index": 0, "name": f"127.0.0.1:{port}"}]
        assert console.events("survey")
        with Client(other.getsockname()[1], 10) as client:
            client.put()
        assert end(process) == ""


def test_the_server_is_ready_before_the_console_starts(console: Console) -> None:
    with ours("-V", *console.options) as server:
        assert eventually(lambda: "the console is ready" in server.stderr(), LIMIT_S)
        before, _, after = server.stderr().partition("ready: version ")
        assert "the console is ready" not in before
        assert "the console is ready" in after


def test_workers_have_precedence(console: Console) -> None:
    with ours(*console.options) as server:
        pid = process_of(server)
        worker = next(one for one in children(server.pid) if one != pid)

        def has_precedence() -> bool:
            own, of_console = (os.getpriority(os.PRIO_PROCESS, one) for one in (worker, pid))
            return own < of_console

        assert eventually(has_precedence, LIMIT_S)


def test_only_its_process_imports_it() -> None:
    names = ("parent.start", "parent.loop", "worker.process", "archiver.process")
    modules = added("-c", f"import {', '.join(f'beanstalkd_py.server.{name}' for name in names)}")
    assert "beanstalkd_py.server.parent.loop" in modules
    console = {name for name in modules if "console" in name or name.startswith("werkzeug")}
    assert console == set()
    serve = added("-c", "import beanstalkd_py.cli.server.serve")
    assert {name for name in serve if "beanstalkd_py.console" in name} == set()


def test_the_parent_does_not_import_it(console: Console, users: Path) -> None:
    """It checks the users at the start and at a reload, without the libraries of the console."""
    program = """
import sys
import gevent.monkey
from beanstalkd_py.__main__ import main
try:
    main()
finally:
    imported = {"werkzeug", "beanstalkd_py.console.application"} & {*sys.modules}
    assert not imported and not gevent.monkey.is_module_patched("socket")
"""
    port = free_port()
    words = ["serve", "-l", "127.0.0.1", "-p", str(port), "--workers", "1", *console.options]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words, "--console-users", str(users)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "ready: " in process.stderr.readline()
        assert console.session()["login"] is True
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        process.terminate()
        assert process.stderr.read() == ""
    assert process.returncode == 0


# --- its process ----------------------------------------------------------------------------------


def test_a_killed_console_comes_back_and_disturbs_no_client(console: Console) -> None:
    metrics = free_port()
    with ours(*console.options, "--metrics", f"127.0.0.1:{metrics}") as server:
        with server.connect() as client:
            job = client.put(b"kept")
            assert client.ask(b"reserve\r\n").startswith(b"RESERVED")
            first = process_of(server)
            assert console.session()
            os.kill(first, signal.SIGKILL)
            assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
            # A request waits in the listening socket until the next process accepts it.
            assert console.servers()
            assert process_of(server) != first
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        counted = 'beanstalkd_component_restarts_total{component="console"} 1.0'
        assert counted in scrape(metrics, "/metrics").text
        assert "console (pid" in server.stderr()
        assert "was killed by signal 9; restarting in 0.1 s" in server.stderr()


def test_a_failing_console_is_in_the_status_and_does_not_make_the_server_unready(
    console: Console, users: Path
) -> None:
    metrics = free_port()
    options = (*console.options, "--console-users", str(users))
    with ours(*options, "--metrics", f"127.0.0.1:{metrics}") as server:
        assert console.session()
        text = users.read_text()
        users.unlink()
        os.kill(process_of(server), signal.SIGKILL)
        failing = "; console keeps restarting"
        assert eventually(lambda: failing in scrape(metrics, "/-/ready").text, LIMIT_S)
        assert scrape(metrics, "/-/ready").status == 200
        gauge = 'beanstalkd_component_keeps_restarting{component="console"} 1.0'
        assert gauge in scrape(metrics, "/metrics").text
        assert f"console failed: cannot read users {users}" in server.stderr()
        users.write_text(text)
        assert console.session()["login"] is True


def test_it_does_not_wait_for_a_reader_of_stderr(console: Console) -> None:
    command = [sys.executable, "-m", "beanstalkd_py", "serve", "-l", "127.0.0.1", "--workers", "1"]
    options = ("-p", str(free_port()), "-V", "--console-role", "operate", *console.options)
    body = "x" * (PIPE_BYTES // 2)
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE) as server:
        try:
            console.wait()
            for _ in range(4):
                assert console.put(body)[0] == 200  # the log has the audit entry
        finally:
            server.kill()


@pytest.mark.parametrize("to_group", [False, True])
def test_it_ends_with_the_server(console: Console, to_group: bool) -> None:
    """Also after Ctrl-C, which reaches all processes."""
    with ours(*console.options) as server:
        pid = process_of(server)
        with console.stream() as response:
            assert response.readline()
            if to_group:
                os.killpg(server.pid, signal.SIGINT)
            else:
                server.signal(signal.SIGTERM)
            assert eventually(lambda: server.exit_status is not None, LIMIT_S)
        assert server.exit_status == 0
        assert not alive(pid)
        assert server.complaints() == ""


def test_it_ends_when_the_parent_is_killed(console: Console) -> None:
    with ours(*console.options) as server:
        pid = process_of(server)
        assert console.session()
        server.signal(signal.SIGKILL)
        assert eventually(lambda: not alive(pid), LIMIT_S)


def test_user_of_the_server(console: Console, folder_of_nobody: Path) -> None:
    """Root binds the address, and the console is a process of the other user."""
    if os.geteuid() != 0 or not is_world_executable(Path(sys.executable)):
        return  # tests/cli/server/test_addresses.py has the errors
    uid = pwd.getpwnam("nobody").pw_uid
    audit = folder_of_nobody / "audit"
    options = ("-u", "nobody", "-b", folder_of_nobody, "--console-audit-log", audit)
    with ours(*options, *console.options, "--console-role", "operate") as server:
        status, done = console.put()
        assert status == 200, done
        uids = Path(f"/proc/{process_of(server)}/status").read_text().partition("Uid:")[2]
        assert uids.split()[:4] == [str(uid)] * 4
        assert audit.stat().st_uid == uid
        assert stat.S_IMODE(audit.stat().st_mode) == 0o600
        actions = [json.loads(line)["action"] for line in audit.read_text().splitlines()]
        assert "put" in actions


def test_the_address_of_a_client_behind_a_proxy(console: Console, tmp_path: Path) -> None:
    """The last one that the header has, because the proxy appends it."""
    audit = tmp_path / "audit"
    options = (*console.options, "--console-role", "operate", "--console-audit-log", audit)
    for is_proxied, expected in ((False, "127.0.0.1"), (True, "192.0.2.9")):
        with ours(*options, *(["--console-https"] if is_proxied else [])):
            console.headers = {"X-Forwarded-For": "192.0.2.1, 192.0.2.9"}
            assert console.put()[0] == 200
        last = json.loads(audit.read_text().splitlines()[-1])
        assert (last["action"], last["address"]) == ("put", expected)


def test_an_audit_log_that_is_rotated(console: Console, tmp_path: Path) -> None:
    audit, rotated = tmp_path / "audit", tmp_path / "audit.1"
    options = (*console.options, "--console-role", "operate", "--console-audit-log", audit)
    with ours(*options) as server:
        assert console.put()[0] == 200
        audit.rename(rotated)
        server.signal(signal.SIGHUP)
        assert eventually(audit.exists, LIMIT_S)
        lines = rotated.read_text()
        assert console.put()[0] == 200
        assert audit.read_text().count('"put"') == lines.count('"put"')
        assert rotated.read_text() == lines
        status, page = console.ask("/api/audit")
        assert status == 200
        assert json.dumps(page).count('"put"') == 2 * lines.count('"put"')


# --- users and reload -----------------------------------------------------------------------------


def reload(server: Server, logged: str) -> None:
    before = server.stderr().count(logged)
    server.signal(signal.SIGHUP)
    assert eventually(lambda: server.stderr().count(logged) > before, LIMIT_S), server.stderr()


@pytest.fixture
def with_users(console: Console, users: Path) -> Iterator[Server]:
    options = (*console.options, "--console-users", str(users), "-V")
    with ours(*options) as server:
        assert console.session()["login"] is True
        yield server


def test_a_reload_reads_the_users_again(console: Console, users: Path, with_users: Server) -> None:
    bob = Console(console.port)
    assert console.log_in("ann") == 200
    assert bob.log_in("bob") == 401
    with console.stream() as response:
        assert response.readline()
        users.write_text(line_of("bob", Role.OPERATE))
        with_users.signal(signal.SIGHUP)
        response.read()  # the events of the removed user end
    assert console.session()["user"] is None
    assert console.ask("/api/s/0/binlog")[0] == 401
    assert console.log_in("ann") == 401
    assert bob.log_in("bob") == 200
    assert bob.session()["role"] == "operate"


def test_a_reload_changes_the_role_and_the_password_of_sessions(
    console: Console, users: Path, with_users: Server
) -> None:
    assert console.log_in("ann") == 200
    ann = users.read_text()
    users.write_text(ann.replace(" admin ", " read "))
    with_users.signal(signal.SIGHUP)
    assert eventually(lambda: console.session()["role"] == "read", LIMIT_S)
    users.write_text(line_of("ann", Role.ADMIN, "another password"))
    with_users.signal(signal.SIGHUP)
    assert eventually(lambda: console.session()["user"] is None, LIMIT_S)
    assert console.log_in("ann", "another password") == 200


def test_a_reload_with_invalid_users_changes_nothing(
    console: Console, users: Path, with_users: Server
) -> None:
    assert console.log_in("ann") == 200
    users.write_text("ann king hash\n")
    text = f"reload: users {users}, line 1: unknown role 'king'"
    reload(with_users, text)
    assert "nothing has changed" in with_users.stderr()
    assert console.session()["role"] == "admin"


def test_the_name_of_the_users_file_needs_a_restart(
    users: Path, console: Console, tmp_path: Path
) -> None:
    file = tmp_path / "options.toml"
    file.write_text(f'console = "127.0.0.1:{console.port}"\nconsole-users = "{users}"\n')
    with ours("--config", str(file)) as server:
        assert console.log_in("ann") == 200
        file.write_text(f'console = "127.0.0.1:{console.port}"\n')
        reload(server, "reload: console-users None needs a restart")
        assert console.session()["login"] is True


# --- refused options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--console", "11381"], "option --console: '11381' is not an address"),
        (
            ["--console", "0.0.0.0:0"],
            "0.0.0.0 is reachable from other machines; give --console-users FILE",
        ),
        (["--console-users", "f"], "option --console-users requires --console HOST:PORT"),
        (["--console-role", "admin"], "option --console-role requires --console HOST:PORT"),
        (["--console-host", "a"], "option --console-host requires --console HOST:PORT"),
        (["--console-user-header", "a"], "option --console-user-header requires --console "),
        (["--console-https"], "option --console-https requires --console HOST:PORT"),
        (["--console-audit-log", "f"], "option --console-audit-log requires --console HOST:PORT"),
        (
            ["--console", "127.0.0.1:0", "--console-user-header", "a"],
            "option --console-user-header requires --console-users FILE",
        ),
        (
            ["--console", "0.0.0.0:0", "--console-user-header", "a", "--console-users", "f"],
            "option --console-user-header: anybody could send this header",
        ),
        (["--console", "127.0.0.1:0", "--console-users", "/f"], "cannot read users /f: No such"),
        (
            ["--console", "127.0.0.1:0", "--console-audit-log", "/f/g"],
            "cannot write audit log /f/g: No such",
        ),
    ],
)
def test_refused_options(words: list[str], expected: str) -> None:
    assert expected in refusal(USAGE, "-l", "127.0.0.1", "-p0", *words)


@pytest.mark.parametrize(
    "invalid",
    ["x", "scrypt:3:8:1$a$ab", "scrypt:0:8:1$a$ab", "scrypt:2:0:1$a$ab", "pbkdf2:sha1:1$a$ab"],
)
def test_a_hash_that_matches_no_password(tmp_path: Path, invalid: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"ann read {invalid}\n")
    with pytest.raises(errors.UsageError, match="line 1: the hash is not one of console-user"):
        load_accounts(path)


def test_users_are_read_without_computing_hashes(tmp_path: Path) -> None:
    """The parent reads them at a reload, and serves nobody meanwhile."""
    path = tmp_path / "users"
    hashed = account_line("ann", Role.READ, PASSWORD).split()[2]
    other = generate_password_hash(PASSWORD, "pbkdf2:sha256:1000")
    path.write_text("".join(f"user{n} read {(hashed, other)[n % 2]}\n" for n in range(1000)))
    began = time.process_time()
    accounts = load_accounts(path)
    assert time.process_time() - began < 1
    assert verify(accounts, "user0", PASSWORD) is accounts["user0"]
    assert verify(accounts, "user1", PASSWORD) is accounts["user1"]


def test_an_invalid_users_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# none\n")
    options = ("--console", "127.0.0.1:0", "--console-users", tmp_path / "users")
    assert "no user; beanstalkd-py console-user" in refusal(USAGE, "-p0", *options)


def test_a_busy_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal(BIND, "-l", "127.0.0.1", "-p0", "--console", address)
    assert f"cannot listen on {address}: Address already in use" in line


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    with pytest.raises(click.UsageError, match=r"pip install 'beanstalkd_py\[console\]'"):
        check_console_options(serve.make_context("serve", ["--console=127.0.0.1:0"]).params)


def test_an_address_that_is_kept_and_refuses_connections() -> None:
    """As on a standby, which serves its console when it is the primary."""
    listener = bind(InetAddress("127.0.0.1", 0), listening=False)
    address = listener.socket.getsockname()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        listener.listen()
        socket.create_connection(address).close()
        with pytest.raises(errors.AddressError):
            bind(InetAddress("127.0.0.1", address[1]))
    finally:
        listener.close()
