"""A request to the console: who sent it, and its checked values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from werkzeug.wrappers import Request

from beanstalkd_py.admin.tube_name import TUBE_NAMES, is_tube_name
from beanstalkd_py.console.access.accounts import Account, Role

Values = Mapping[str, object]


class RefusedRequestError(Exception):
    """A request that gets an error. `status` is that of HTTP."""

    def __init__(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = list(headers)


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
        return checked_tube(self.text("tube"))

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


def checked_tube(tube: str) -> str:
    if not is_tube_name(tube):
        raise RefusedRequestError(400, f"tube is {tube!r}; a tube's name has {TUBE_NAMES}")
    return tube


def require(visit: Visit, role: Role) -> None:
    if visit.account is None or visit.account.role < role:
        raise RefusedRequestError(403, f"this needs the role {role.name.lower()}")
