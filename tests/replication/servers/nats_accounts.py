"""Accounts of NATS with credentials, as the tool nsc makes them.

An operator signs accounts, and an account signs users.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys

UNLIMITED = -1


class Key:
    """A key pair. `name` is the public key."""

    def __init__(self, kind: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.name: str = self._pair.public_key.decode()

    def token(
        self, subject: str, kind: str, registered: dict[str, int] | None = None, **claims: Any
    ) -> str:
        """Return a JWT of this issuer. `claims` are those of NATS."""
        content = {
            "jti": base64.b32encode(os.urandom(32)).decode().rstrip("="),
            "iat": int(time.time()),
            "iss": self.name,
            "name": "test",
            "sub": subject,
            "nats": {"type": kind, "version": 2, **claims},
            **(registered or {}),
        }
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        signed = f"{_encoded(json.dumps(header))}.{_encoded(json.dumps(content))}"
        return f"{signed}.{_encoded(self._pair.sign(signed.encode()))}"


class Accounts:
    """An operator, and one account that may use JetStream."""

    def __init__(self) -> None:
        self._operator = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self._system = Key(nkeys.PREFIX_BYTE_ACCOUNT)
        self._account = Key(nkeys.PREFIX_BYTE_ACCOUNT)

    def settings(self) -> str:
        """Return lines of a configuration of nats-server."""
        names = ("subs", "conn", "leaf", "imports", "exports", "data", "payload")
        limits = dict.fromkeys((*names, "mem_storage", "disk_storage"), UNLIMITED)
        limits |= {"streams": UNLIMITED, "consumer": UNLIMITED, "wildcards": True}
        operator, system, account = self._operator, self._system, self._account
        own = operator.token(operator.name, "operator", system_account=system.name)
        basic = operator.token(system.name, "account")
        full = operator.token(account.name, "account", limits=limits)
        return (
            f"operator: {own}\nsystem_account: {system.name}\nresolver: MEMORY\n"
            f"resolver_preload {{ {system.name}: {basic}, {account.name}: {full} }}\n"
        )

    def write_user(self, path: Path, seconds: int | None = None) -> Path:
        """Write a file of credentials, which expire after `seconds`."""
        user = Key(nkeys.PREFIX_BYTE_USER)
        limits = dict.fromkeys(("subs", "data", "payload"), UNLIMITED)
        end = {} if seconds is None else {"exp": int(time.time()) + seconds}
        token = self._account.token(user.name, "user", end, **limits)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )
        return path


def _encoded(data: str | bytes) -> str:
    data = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
