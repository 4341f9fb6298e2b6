"""The console as a WSGI application: pages, JSON, server-sent events, and who may use them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gevent import get_hub
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from beanstalkd_py import __version__, errors
from beanstalkd_py.admin.statistics import STATES
from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
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
from beanstalkd_py.console.live import Live, event, samples_of
from beanstalkd_py.console.operation import Operation, cut_off
from beanstalkd_py.console.operations import KINDS, Caller, Operations, plan
from beanstalkd_py.console.static_files import INDEX, StaticFile, load_static_files
from beanstalkd_py.console.target import Target
from beanstalkd_py.console.threads import call_in_thread
from beanstalkd_py.console.views import history, job_entries, jobs, server_state, timeline

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOGGER = logging.getLogger("beanstalkd_py")
COOKIE = "beanstalkd-console"
REQUEST_BYTES = 4 << 20
"""A body of a request: a job of a put, or ids."""
LOGIN_BYTES = 16 << 10
"""The limit of those who have not logged in."""
MOST_JOBS = 500
MOST_VIEWERS = 200
MOST_AGE_S = 2**32
MOST_ID = 2**64 - 1
OPERATIONS_SHOWN = 50
LONGEST_ADDRESS = 64
STOP_S = 3.0
"""How long the end of the process waits for the operations of a server."""

Values = Mapping[str, object]


class RefusedRequestError(Exception):
    """A request that gets an error. `status` is that of HTTP."""

    def __init__(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = list(headers)


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


@dataclass(slots=True)
class Visit:
    """A request and who sent it."""

    request: Request
    account: Account | None
    address: str
    values: Values = field(default_factory=dict)
    """Of the path."""

    @property
    def user(self) -> str:
        return self.account.name if self.account is not None else ""

    def number(self, name: str, default: int, most: int) -> int:
        """Return a number of the query. Raises RefusedRequestError."""
        text = self.request.args.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 21 and int(text) <= most):
            raise RefusedRequestError(400, f"{name} is {text!r}; give a number up to {most}")
        return int(text)

    def optional(self, name: str, most: int) -> int | None:
        return self.number(name, 0, most) if self.request.args.get(name) else None

    def seconds(self, name: str) -> float | None:
        text = self.request.args.get(name, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e11:
            raise RefusedRequestError(400, f"{name} is {text!r}; give seconds since 1970")
        return value

    def tube(self) -> str:
        """Return the tube of the query. Raises RefusedRequestError."""
        return _checked_tube(self.text("tube"))

    def text(self, name: str, longest: int = 1000) -> str:
        value = self.request.args.get(name, "")
        if len(value) > longest:
            raise RefusedRequestError(400, f"{name} has more than {longest} characters")
        return value

    def json(self) -> Values:
        """Return the object of the body. Raises RefusedRequestError."""
        if self.request.mimetype != "application/json":
            raise RefusedRequestError(415, "send application/json")
        try:
            values = json.loads(self.request.get_data())
            # Other viewers get these values again: without NaN, and with valid characters.
            json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise RefusedRequestError(400, "the body is not JSON") from error
        if not isinstance(values, dict):
            raise RefusedRequestError(400, "the body is not a JSON object")
        return values


def _checked_tube(tube: str) -> str:
    if not is_tube_name(tube):
        raise RefusedRequestError(400, f"tube is {tube!r}; a tube's name has {TUBE_NAMES}")
    return tube


class TubeConverter(BaseConverter):
    """The rest of a path, also with a slash first. Pages write ~. and ~.. for . and .. in it."""

    part_isolating = False
    regex = ".+"

    def to_python(self, value: str) -> str:
        return value.removeprefix("~")


class ServerPages:
    """What the console has about one server."""

    def __init__(self, target: Target, audit: AuditLog) -> None:
        self.target = target
        self.live = Live(target, lambda: iter([self._operations_event()]))
        self.operations = Operations(target, audit, self._changed)
        self.history = history.History(target.history)

    def _changed(self, _: Operation) -> None:
        self.live.publish(self._operations_event())

    def _operations_event(self) -> bytes:
        return event("operations", {"operations": self.shown_operations()})

    def shown_operations(self) -> list[Values]:
        return [one.shown() for one in self.operations.list()[:OPERATIONS_SHOWN]]


Handler = Callable[[Visit, ServerPages], object]


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
        _require(visit, endpoint.role)
        if endpoint.handler is None:
            if pages.live.viewers >= MOST_VIEWERS:
                raise RefusedRequestError(503, f"{MOST_VIEWERS} pages are open; close some")
            pages.history.prepare()
            events = self._while_logged_in(visit.request, pages.live.events())
            return Response(events, mimetype="text/event-stream", headers=EVENTS_HEADERS)
        visit.values = values
        return _json(endpoint.handler(visit, pages))

    def _while_logged_in(
        self, request: Request, events: Generator[bytes, None, None]
    ) -> Iterator[bytes]:
        with contextlib.closing(events):
            for data in events:
                if self._account(request) is None:
                    return
                yield data

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


def _require(visit: Visit, role: Role) -> None:
    if visit.account is None or visit.account.role < role:
        raise RefusedRequestError(403, f"this needs the role {role.name.lower()}")


# --- what is asked about a server -----------------------------------------------------------------


def _tube(visit: Visit, pages: ServerPages) -> object:
    return server_state.one_tube(pages.target, _checked_tube(str(visit.values["tube"])))


def _jobs(visit: Visit, pages: ServerPages) -> object:
    state = visit.text("state") or jobs.ANY
    if state not in (jobs.ANY, *STATES):
        raise RefusedRequestError(400, f"state is {state!r}; use one of any, {', '.join(STATES)}")
    wanted = jobs.JobFilter(
        visit.tube(),
        state,
        visit.number("min_age", 0, MOST_AGE_S),
        visit.optional("max_age", MOST_AGE_S),
        visit.number("min_pri", 0, MOST_AGE_S),
        visit.optional("max_pri", MOST_AGE_S),
        visit.text("body"),
    )
    after, limit = visit.number("after", 0, MOST_ID), visit.number("limit", 100, MOST_JOBS)
    return jobs.list_jobs(pages.target, wanted, after, max(limit, 1))


def _job(visit: Visit, pages: ServerPages) -> object:
    number = visit.values["job"]
    assert isinstance(number, int)
    if not 0 < number <= MOST_ID:
        raise RefusedRequestError(404, f"there is no job {number}")
    try:
        found = jobs.one_job(pages.target, number)
    except errors.RefusedError:
        messages = pages.history.messages_of_job(number)
        if not messages:
            raise
        events = timeline.ended_timeline(messages[0])
        body, stats = messages[0].body, messages[0].properties
        rest = {"live": False, "holder": None, "history": messages[0]}
        return {"stats": stats, "body": body, "timeline": events, **rest}
    entries = job_entries.entries_of_job(pages.target, number, found.stats)
    return {
        "stats": found.stats,
        "body": found.body,
        "live": True,
        "holder": server_state.holder(pages.target, number),
        "timeline": timeline.live_timeline(found.stats, entries),
        "history": None,
    }


def _dead_letters(visit: Visit, pages: ServerPages) -> object:
    if not visit.text("tube"):
        return jobs.buried_tubes(pages.target)
    return jobs.dead_letters(pages.target, visit.tube())


def _connections(visit: Visit, pages: ServerPages) -> object:
    limit = visit.number("limit", 1000, server_state.MOST_CONNECTIONS)
    return {"connections": server_state.connections(pages.target, visit.text("tube"), limit)}


def _history_messages(visit: Visit, pages: ServerPages) -> object:
    query = history.HistoryQuery(
        visit.text("tube"),
        visit.text("key"),
        visit.seconds("from"),
        visit.seconds("to"),
        visit.text("event"),
        visit.optional("before", 2**63 - 1),
        visit.number("limit", 100, history.MOST_MESSAGES),
    )
    return pages.history.messages(query)


def _doctor(visit: Visit, pages: ServerPages) -> object:
    """Takes seconds, most of them in reads of the disk."""
    examine = partial(server_state.doctor, pages.target)
    return {"findings": call_in_thread(get_hub().threadpool, examine)}


def _begin(visit: Visit, pages: ServerPages) -> object:
    values = dict(visit.json())
    kind, dry_run = values.pop("kind", None), values.pop("dry_run", False)
    if not isinstance(kind, str) or kind not in KINDS:
        raise RefusedRequestError(400, f"kind is {kind!r}; use one of {', '.join(KINDS)}")
    _require(visit, KINDS[kind].role)
    if dry_run is not False:
        return plan(kind, pages.target, values)
    return pages.operations.begin(kind, values, _caller(visit))


def _caller(visit: Visit) -> Caller:
    return Caller(visit.user, visit.address)


def _stop(visit: Visit, pages: ServerPages) -> object:
    number = visit.values["number"]
    assert isinstance(number, int)
    return pages.operations.stop(number, _caller(visit))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below a server, the least role, and the answer. `handler` is None for the events."""

    method: str
    path: str
    role: Role
    handler: Handler | None


def _read(path: str, handler: Handler | None) -> Endpoint:
    return Endpoint("GET", path, Role.READ, handler)


ENDPOINTS = (
    _read("live", None),
    _read("samples", lambda visit, pages: samples_of(pages.live)),
    _read("tubes/<tube:tube>", _tube),
    _read("jobs", _jobs),
    _read("jobs/<int:job>", _job),
    _read("connections", _connections),
    _read("dead-letters", _dead_letters),
    _read("history/topics", lambda visit, pages: {"topics": pages.history.topics()}),
    _read("history/messages", _history_messages),
    _read("schedules", lambda visit, pages: {"schedules": server_state.schedules(pages.target)}),
    _read("policies", lambda visit, pages: {"policies": server_state.policies(pages.target)}),
    _read("binlog", lambda visit, pages: server_state.binlog(pages.target)),
    _read(
        "replication",
        lambda visit, pages: {"replication": server_state.replication(pages.target)},
    ),
    _read("doctor", _doctor),
    _read("operations", lambda visit, pages: {"operations": pages.shown_operations()}),
    Endpoint("POST", "operations", Role.OPERATE, _begin),
    Endpoint("POST", "operations/<int:number>/stop", Role.OPERATE, _stop),
)

NOT_STORED = [("Cache-Control", "no-store")]
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
