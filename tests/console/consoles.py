"""Start consoles beside servers, and send them requests as a browser, a script or an attacker."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from processes import eventually
from servers import Server, free_port
from werkzeug.security import generate_password_hash

ROLES = ("read", "operate", "admin")
PASSWORD = "correct horse"
FAST_HASH = "pbkdf2:sha256:1"
"""Tests of other things need no slow hash."""
BROWSER = {"Sec-Fetch-Site": "same-origin"}
START_S = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_no_constant)

    @property
    def error(self) -> str:
        text: str = self.json["error"]
        return text


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


class Visitor:
    """Sends requests to a console, with the headers of a browser unless a test replaces them."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.headers = dict(headers or {})

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
        timeout_s: float = 20.0,
    ) -> Answer:
        """Send a request; a header of None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        all_headers: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", **BROWSER}
        all_headers |= {**self.headers, **(headers or {})}
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in all_headers.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def get(self, path: str, /, **query: object) -> Answer:
        return self.request("GET", f"/api/{path}" + (f"?{urlencode(query)}" if query else ""))

    def post(
        self, path: str, values: object, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self.request("POST", f"/api/{path}", json.dumps(values).encode(), sent)

    def ok(self, path: str, /, **query: object) -> Any:
        answer = self.get(path, **query)
        assert answer.status == 200, answer
        return answer.json

    def login(self, user: str, password: str = PASSWORD) -> Answer:
        """Log in, and keep the cookie."""
        answer = self.post("login", {"user": user, "password": password})
        if answer.status == 200:
            self.headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    def dry_run(self, kind: str, **arguments: object) -> Any:
        answer = self.post("s/0/operations", {"kind": kind, "dry_run": True, **arguments})
        assert answer.status == 200, answer
        return answer.json

    def begin(self, kind: str, **arguments: object) -> Any:
        answer = self.post("s/0/operations", {"kind": kind, "dry_run": False, **arguments})
        assert answer.status == 200, answer
        return answer.json

    def run(self, kind: str, **arguments: object) -> Any:
        """Run an operation to its end."""
        return self.ended(self.begin(kind, **arguments)["id"])

    def operation(self, number: int) -> Any:
        return next(one for one in self.ok("s/0/operations")["operations"] if one["id"] == number)

    def ended(self, number: int, limit_s: float = 20.0) -> Any:
        assert eventually(lambda: self.operation(number)["ended"] is not None, limit_s)
        return self.operation(number)

    @contextlib.contextmanager
    def events(self, path: str = "/api/s/0/live", timeout_s: float = 20.0) -> Iterator[Events]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={**BROWSER, **self.headers})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield Events(response)


class Events:
    """The server-sent events of one viewer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> tuple[str, bytes]:
        """Return the name and the data of the next event; comments are left out."""
        name = ""
        while True:
            line = self._response.readline().rstrip(b"\n")
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                return name, line[6:]
            elif not line and self._response.isclosed():
                raise AssertionError("the events have ended")

    def until(self, name: str, limit_s: float = 20.0) -> Any:
        """Return the data of the next event of this name."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            found, data = self.next()
            if found == name:
                return json.loads(data, parse_constant=_no_constant)
        raise AssertionError(f"no event {name} in {limit_s} s")


class ConsoleProcess(Server):
    """A running console."""

    def visitor(self, **headers: str) -> Visitor:
        return Visitor(self.port, {name.replace("_", "-"): one for name, one in headers.items()})

    def user(self, name: str) -> Visitor:
        """Return a visitor who has logged in."""
        visitor = Visitor(self.port)
        answer = visitor.login(name)
        assert answer.status == 200, answer
        return visitor

    def wait_until_serving(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            assert self.exit_status is None, self.stderr()
            with contextlib.suppress(OSError):
                Visitor(self.port).get("session")
                return
            time.sleep(0.02)
        raise AssertionError(f"the console does not start: {self.stderr()}")


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "beanstalkd_py", "console", *map(str, args)]


@contextlib.contextmanager
def console(*servers: Server, args: tuple[str | Path, ...] = ()) -> Iterator[ConsoleProcess]:
    """Run a console for these servers; by default everybody is an admin."""
    port = free_port()
    addresses = [word for one in servers for word in ("--addr", f"127.0.0.1:{one.port}")]
    roles = () if "--role" in args or "--users" in args else ("--role", "admin")
    words = command("--listen", f"127.0.0.1:{port}", *addresses, *roles, *args)
    process = ConsoleProcess(words, port, {})
    try:
        process.wait_until_serving()
        yield process
    except BaseException as error:
        error.add_note(f"stderr of the console: {process.stderr()[-2000:]}")
        process.kill()
        raise
    process.stop()
    assert "Traceback" not in process.stderr(), process.stderr()


def users_file(folder: Path, method: str = FAST_HASH) -> Path:
    """Write a user for each role, named like it."""
    path = folder / "users"
    hashed = generate_password_hash(PASSWORD, method)
    path.write_text("# users of a test\n" + "".join(f"{one} {one} {hashed}\n" for one in ROLES))
    return path
