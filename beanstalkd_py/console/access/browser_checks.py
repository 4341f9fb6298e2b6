"""Checks that a request comes from the console's own pages.

C1  The host of a request is one that the operator knows, so a name that an attacker binds to
    this address reaches nothing (DNS rebinding).
C2  A request that changes something comes from this origin: by Sec-Fetch-Site, or by an Origin
    with the same host (cross-site request forgery). Other sites cannot make this console work
    with a request that only reads, either.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")

_SOURCES = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", _SOURCES),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Of each response."""


def known_hosts(host: str, names: Iterable[str]) -> frozenset[str]:
    """Return the hosts of C1 for a listening host, and the names that the operator gives."""
    local = ("localhost", "127.0.0.1", "::1") if is_loopback(host) else ()
    return frozenset(name.lower() for name in (host, *local, *names))


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the host of a header Host, without its port; empty if invalid."""
    found = _HOST.fullmatch(header.lower())
    return found[1].strip("[]") if found else ""


def is_from_other_site(site: str | None) -> bool:
    """Return whether a page of another site has sent a request; old browsers do not report it."""
    return site not in (None, "same-origin", "none")


def is_same_origin(site: str | None, origin: str | None, host: str) -> bool:
    """C2, from the headers Sec-Fetch-Site, Origin and Host."""
    if site is not None:
        return site == "same-origin"
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
