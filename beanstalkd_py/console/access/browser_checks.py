"""Checks that a request comes from the console's own pages.

C1  The host of a request is one that the operator knows, so a name that an attacker binds to
    this address reaches nothing (DNS rebinding).
C2  A request that changes something comes from this origin: by Sec-Fetch-Site, or by an Origin
    with the same host (cross-site request forgery).
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

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
    return host in ("localhost", "::1") or host.startswith("127.")


def host_of(header: str) -> str:
    """Return the host of a header Host, without its port; empty if invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


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
