"""The console as a WSGI application: pages, JSON, server-sent events, and who may use them."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from gevent import get_hub
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from beanstalkd_py import __version__, errors
from beanstalkd_py.console.access.accounts import MAX_PASSWORD, Account, Role, verify
from beanstalkd_py.console.access.browser_checks import (
    HEADERS,
    host_of,
    is_from_other_site,
    is_loopback,
    is_same_origin,
)
from beanstalkd_py.console.access.sessions import LONGEST_S, LoginLimit, Sessions, network_of
from beanstalkd_py.console.audit_log import AuditEntry, AuditLog
from beanstalkd_py.console.endpoints import ENDPOINTS, Endpoint, ServerPages
from beanstalkd_py.console.operations.operation import cut_off
from beanstalkd_py.console.requests import RefusedRequestError, Values, Visit, require
from beanstalkd_py.console.static_files import INDEX, StaticFile, load_static_files
from beanstalkd_py.console.target import Target

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOGGER = logging.getLogger("beanstalkd_py")
COOKIE = "beanstalkd-console"
REQUEST_BYTES = 4 << 20
"""A body of a request: a job of a put, or ids."""
LOGIN_BYTES = 16 << 10
"""The limit of those who have not logged in."""
MOST_VIEWERS = 200
LONGEST_ADDRESS = 64
STOP_S = 3.0
"""How long the end of the process waits for the operations of a server."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`accounts` is empty without a login; everybody then has the role `local_role`.

    With `user_header` a proxy has checked the user, whose role is that of the account.
    """

    targets: Sequence[Target]
    hosts: frozenset[str]
    accounts: Mapping[str, Account] = field(default_factory=dict)
    local_role: Role = Role.READ
    user_header: str | None = None
    is_secure: bool = False
    """Whether browsers use https, by a proxy."""


class TubeConverter(BaseConverter):
    """The rest of a path, also with a slash first. Pages write ~. and ~.. for . and .. in it."""

    part_isolating = False
    regex = ".+"

    def to_python(self, value: str) -> str:
        return value.removeprefix("~")


class Console:
    """The application."""

    def __init__(self, options: ConsoleOptions, audit: AuditLog) -> None:
        self._options = options
        self._audit = audit
        self._servers = [ServerPages(target, audit) for target in options.targets]
        self._files = load_static_files()
        self._sessions = Sessions()
        self._limit = LoginLimit()
        self._urls = Map(
            [
                Rule("/api/session", endpoint="session", methods=["GET"]),
                Rule("/api/login", endpoint="login", methods=["POST"]),
                Rule("/api/logout", endpoint="logout", methods=["POST"]),
                Rule("/api/audit", endpoint="audit", methods=["GET"]),
                *(
                    Rule(f"/api/s/<int:server>/{one.path}", endpoint=one, methods=[one.method])
                    for one in ENDPOINTS
                ),
            ],
            converters={"tube": TubeConverter},
            merge_slashes=False,
        )

    def change_accounts(self, accounts: Mapping[str, Account]) -> None:
        """Apply other accounts, also to sessions and events that have begun."""
        if accounts == self._options.accounts:
            return
        self._options = dataclasses.replace(self._options, accounts=accounts)
        for one in self._servers:
            one.live.end_all()

    def reopen_audit_log(self) -> None:
        """Raises OSError."""
        self._audit.reopen()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = REQUEST_BYTES
        try:
            response = self._answer(request)
        except RefusedRequestError as error:
            response = _json({"error": str(error)}, error.status)
            response.headers.extend(error.headers)
        except RequestEntityTooLarge:
            text = f"the body has more than {request.max_content_length} bytes"
            response = _json({"error": text}, 413)
        except HTTPException as error:
            response = _json({"error": "the request is not valid"}, error.code or 400)
        except errors.RefusedError as error:
            response = _json({"error": str(error)}, 404 if error.word == "NOT_FOUND" else 409)
        except errors.ToolUsageError as error:
            response = _json({"error": str(error)}, 400)
        except (errors.NoConnectionError, errors.ControlError) as error:
            response = _json({"error": str(error)}, 503)
        except (errors.BeanstalkdError, OSError) as error:
            LOGGER.warning("console: %s %s: %s", request.method, request.path, error)
            response = _json({"error": str(error)}, 500)
        except Exception:
            LOGGER.exception("console: %s %s failed", request.method, request.path)
            response = _json({"error": "the console has a fault; its log has the details"}, 500)
        response.headers.extend(HEADERS)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if host_of(request.headers.get("Host", "")) not in self._options.hosts:
            text = "this host is not known; give it to the console with --host, or --console-host"
            raise RefusedRequestError(421, text)
        if request.method not in ("GET", "HEAD") and not is_same_origin(
            request.headers.get("Sec-Fetch-Site"),
            request.headers.get("Origin"),
            request.headers.get("Host", ""),
        ):
            raise RefusedRequestError(403, "this request comes from another site")
        if not request.path.startswith("/api/"):
            return self._file(request)
        if is_from_other_site(request.headers.get("Sec-Fetch-Site")):
            raise RefusedRequestError(403, "this request comes from another site")
        try:
            endpoint, values = self._urls.bind_to_environ(request.environ).match()
        except NotFound:
            raise RefusedRequestError(404, f"there is no {request.path}") from None
        except MethodNotAllowed:
            raise RefusedRequestError(405, f"{request.method} is not possible here") from None
        except (HTTPException, ValueError) as error:  # a number of thousands of digits
            raise RefusedRequestError(404, "this address is not valid") from error
        visit = Visit(request, self._account(request), self._address(request))
        match endpoint:
            case "session":
                return _json(self._session(visit))
            case "login":
                return self._login(visit)
            case "logout":
                return self._logout(visit)
        if visit.account is None:
            raise RefusedRequestError(401, "log in first")
        if endpoint == "audit":
            return _json(
                {"entries": [_entry(one) for one in self._audit.page(visit.seconds("before"))]}
            )
        return self._of_server(visit, endpoint, dict(values))

    def _of_server(self, visit: Visit, endpoint: Endpoint, values: dict[str, object]) -> Response:
        number = values.pop("server")
        if not isinstance(number, int) or number >= len(self._servers):
            raise RefusedRequestError(404, f"there is no server {number}")
        pages = self._servers[number]
        require(visit, endpoint.role)
        if endpoint.handler is None:
            if pages.live.viewers >= MOST_VIEWERS:
                raise RefusedRequestError(503, f"{MOST_VIEWERS} pages are open; close some")
            pages.history.prepare()
            events = self._while_logged_in(visit.request, pages.live.events())
            return Response(events, mimetype="text/event-stream", headers=EVENTS_HEADERS)
        visit.values = values
        found = endpoint.handler(visit, pages)
        if not isinstance(found, Generator):
            return _json(found)
        first = next(found, b"")  # raises what is to be reported
        pieces = self._download(visit.request, first, found)
        return Response(pieces, headers=FILE_HEADERS, mimetype="application/x-ndjson")

    def _while_logged_in(
        self, request: Request, events: Generator[bytes, None, None]
    ) -> Iterator[bytes]:
        with contextlib.closing(events):
            for data in events:
                if self._account(request) is None:
                    return
                yield data

    def _download(
        self, request: Request, first: bytes, rest: Generator[bytes, None, None]
    ) -> Iterator[bytes]:
        """Yield a file. Without its end the reply has none, so that the browser reports it."""
        with contextlib.closing(rest):
            try:
                for data in itertools.chain([first], rest):
                    if self._account(request) is None:
                        raise errors.ToolUsageError("the session has ended")
                    yield data
            except errors.BeanstalkdError as error:
                LOGGER.warning("console: a file was cut off: %s", error)
                raise ConnectionResetError(errno.ECONNRESET, str(error)) from error

    def stop(self) -> None:
        """Stop the operations, after the last request."""
        for pages in self._servers:
            pages.operations.stop_all(STOP_S)

    # --- pages ----------------------------------------------------------------------------------

    def _file(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise RefusedRequestError(405, f"{request.method} is not possible here")
        name = INDEX
        if request.path.startswith("/static/"):
            name = request.path.removeprefix("/static/")
        file = self._files.get(name)
        if file is None:
            raise RefusedRequestError(404, f"there is no {request.path}")
        return _static(request, file)

    # --- login ----------------------------------------------------------------------------------

    def _account(self, request: Request) -> Account | None:
        options = self._options
        if options.user_header is not None:
            return options.accounts.get(request.headers.get(options.user_header, ""))
        if not options.accounts:
            return Account("", options.local_role, "")
        begun = self._sessions.account(request.cookies.get(COOKIE, ""), time.monotonic())
        account = options.accounts.get(begun.name) if begun is not None else None
        if begun is None or account is None or account.password_hash != begun.password_hash:
            return None
        return account

    def _address(self, request: Request) -> str:
        """Return the address of the client, which a proxy on this machine adds to a header."""
        address = request.remote_addr or ""
        if self._options.is_secure and is_loopback(address):
            forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
            return forwarded[:LONGEST_ADDRESS] or address
        return address

    def _session(self, visit: Visit) -> Values:
        account, options = visit.account, self._options
        servers = enumerate(options.targets if account is not None else ())
        return {
            "user": account.name or None if account is not None else None,
            "role": account.role.name.lower() if account is not None else None,
            "login": bool(options.accounts) and options.user_header is None,
            "version": __version__ if account is not None else "",
            "servers": [{"index": index, "name": one.name} for index, one in servers],
        }

    def _login(self, visit: Visit) -> Response:
        if not self._options.accounts or self._options.user_header is not None:
            raise RefusedRequestError(409, "this console has no logins")
        visit.request.max_content_length = LOGIN_BYTES
        values = visit.json()
        name, password = values.get("user"), values.get("password")
        if not isinstance(name, str) or not isinstance(password, str):
            raise RefusedRequestError(400, "give user and password")
        if len(name) > MAX_PASSWORD or len(password) > MAX_PASSWORD:
            raise RefusedRequestError(400, f"at most {MAX_PASSWORD} characters")
        keys = [f"address {network_of(visit.address)}", f"user {name}"]
        now_mono = time.monotonic()
        wait_s = self._limit.wait_s(keys, now_mono)
        if wait_s > 0:
            # Not in the audit log, which attackers could fill: they reach it only between pauses.
            headers = [("Retry-After", str(int(wait_s) + 1))]
            raise RefusedRequestError(429, f"too many attempts; wait {wait_s:.0f} s", headers)
        # Counted before the check, so that concurrent attempts count, too.
        self._limit.failed(keys, now_mono)
        checking = get_hub().threadpool.spawn(verify, self._options.accounts, name, password)
        account: Account | None = checking.get()
        if account is None:
            self._record_login(visit, name, "refused: wrong user or password")
            raise RefusedRequestError(401, "wrong user or password")
        self._limit.succeeded(keys)
        self._record_login(visit, name, "done")
        response = _json(self._session(Visit(visit.request, account, visit.address)))
        token = self._sessions.begin(account, time.monotonic())
        self._set_cookie(response, token, int(LONGEST_S))
        return response

    def _logout(self, visit: Visit) -> Response:
        self._sessions.end(visit.request.cookies.get(COOKIE, ""))
        response = _json({})
        self._set_cookie(response, "", 0)
        return response

    def _set_cookie(self, response: Response, token: str, max_age_s: int) -> None:
        secure = self._options.is_secure
        response.set_cookie(
            COOKIE, token, max_age=max_age_s, secure=secure, httponly=True, samesite="Strict"
        )

    def _record_login(self, visit: Visit, name: str, outcome: str) -> None:
        self._audit.add(AuditEntry(name, visit.address, "", "login", outcome=outcome))


def _entry(entry: AuditEntry) -> Values:
    return {**asdict(entry), "arguments": cut_off(entry.arguments)}


NOT_STORED = [("Cache-Control", "no-store")]
FILE_HEADERS = [*NOT_STORED, ("Content-Disposition", "attachment")]
EVENTS_HEADERS = [*NOT_STORED, ("X-Accel-Buffering", "no")]
"""The second one is for nginx, which would keep events back."""


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (one.name for one in dataclasses.fields(value))
        return {name: getattr(value, name) for name in names}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _json(value: object, status: int = 200) -> Response:
    data = json.dumps(value, default=_plain, separators=(",", ":")).encode()
    return Response(data, status, NOT_STORED, mimetype="application/json")


def _static(request: Request, file: StaticFile) -> Response:
    headers = [
        ("Cache-Control", "no-cache"),
        ("Vary", "Accept-Encoding"),
        ("ETag", f'"{file.tag}"'),
    ]
    if request.if_none_match.contains(file.tag):
        return Response(status=304, headers=headers)
    data = file.plain
    if request.accept_encodings["gzip"] > 0:
        data = file.compressed
        headers.append(("Content-Encoding", "gzip"))
    return Response(data, headers=headers, content_type=file.kind)
