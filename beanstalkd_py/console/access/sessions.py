"""Sessions of users who have logged in, and the limit of failed logins. `now` is monotonic seconds.

Sessions are in memory, so a restart of the console ends them.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from beanstalkd_py.console.access.accounts import Account

IDLE_S = 8 * 3600.0
LONGEST_S = 7 * 24 * 3600.0
MOST_SESSIONS = 1000
FREE_FAILURES = 5
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0
MOST_KEYS = 10_000


@dataclass(slots=True)
class _Session:
    account: Account
    begun: float
    used: float


@dataclass(slots=True)
class Sessions:
    _by_token: OrderedDict[str, _Session] = field(default_factory=OrderedDict)

    def begin(self, account: Account, now: float) -> str:
        """Return the token of a new session; at the limit the least recently used one ends."""
        token = secrets.token_urlsafe(32)
        self._by_token[token] = _Session(account, now, now)
        while len(self._by_token) > MOST_SESSIONS:
            self._by_token.popitem(last=False)
        return token

    def account(self, token: str, now: float) -> Account | None:
        session = self._by_token.get(token)
        if session is None:
            return None
        if now - session.used > IDLE_S or now - session.begun > LONGEST_S:
            del self._by_token[token]
            return None
        session.used = now
        self._by_token.move_to_end(token)
        return session.account

    def end(self, token: str) -> None:
        self._by_token.pop(token, None)


def network_of(address: str) -> str:
    """Return what a client cannot change at will: of IPv6, the network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed.packed, 64), strict=False))


@dataclass(slots=True)
class _Failures:
    count: int = 0
    pause_until: float = 0.0


@dataclass(slots=True)
class LoginLimit:
    """Pauses after failed logins, by key: the address of a client, and the name of a user.

    Pauses double. Each failure counts until a login with this key succeeds.
    """

    _failures: OrderedDict[str, _Failures] = field(default_factory=OrderedDict)

    def wait_s(self, keys: list[str], now: float) -> float:
        """Return how long logins with one of these keys have to wait."""
        found = (self._failures.get(key) for key in keys)
        return max((one.pause_until - now for one in found if one is not None), default=0.0)

    def failed(self, keys: list[str], now: float) -> None:
        for key in keys:
            one = self._failures.setdefault(key, _Failures())
            self._failures.move_to_end(key)
            one.count += 1
            if one.count >= FREE_FAILURES:
                doubled = FIRST_PAUSE_S * 2.0 ** min(one.count - FREE_FAILURES, 20)
                one.pause_until = now + min(doubled, LONGEST_PAUSE_S)
        while len(self._failures) > MOST_KEYS:
            self._failures.popitem(last=False)

    def succeeded(self, keys: list[str]) -> None:
        for key in keys:
            self._failures.pop(key, None)
