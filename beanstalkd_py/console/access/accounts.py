"""Roles, and the file of users with their roles and hashed passwords.

A line is `NAME ROLE HASH`, as `beanstalkd-py console-user` prints it. Empty lines and lines that
begin with # are ignored. Only what makes or checks a hash imports werkzeug.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.regular_file import read_regular

_SCRYPT = r"scrypt:(?P<cost>[0-9]{1,7}):[1-9][0-9]?:[1-9][0-9]?"
_PBKDF2 = r"pbkdf2:sha(256|512):[1-9][0-9]{0,7}"
_HASH = re.compile(rf"({_SCRYPT}|{_PBKDF2})\$[^$]+\$[0-9a-f]+")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MAX_PASSWORD = 1024


class Role(enum.IntEnum):
    """Each role may do what those before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @classmethod
    def named(cls, text: str) -> Role:
        """Raises ValueError for an unknown name."""
        for role in cls:
            if text == role.name.lower():
                return role
        names = ", ".join(role.name.lower() for role in cls)
        raise ValueError(f"unknown role {text!r}; use one of {names}")


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    role: Role
    password_hash: str


def account_line(name: str, role: Role, password: str) -> str:
    """Return the line of a user. Raises ToolUsageError."""
    if not NAME.fullmatch(name):
        raise errors.ToolUsageError(
            f"invalid user {name!r}; use letters, digits and . _ @ -, at most 64"
        )
    if not 8 <= len(password) <= MAX_PASSWORD:
        raise errors.ToolUsageError(f"a password has 8 to {MAX_PASSWORD} characters")
    from werkzeug.security import generate_password_hash

    return f"{name} {role.name.lower()} {generate_password_hash(password)}"


def load_accounts(path: Path) -> dict[str, Account]:
    """Return the users of a file by name. Raises UsageError."""
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise errors.UsageError(f"cannot read users {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.UsageError(f"users {path}: not UTF-8") from error
    accounts: dict[str, Account] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, role, password_hash = line.split()
            account = Account(name, Role.named(role), _checked_hash(password_hash))
        except ValueError as error:
            text = f"users {path}, line {number}: {error}; a line is NAME ROLE HASH"
            raise errors.UsageError(text) from error
        if name in accounts:
            raise errors.UsageError(f"users {path}, line {number}: user {name} is there twice")
        accounts[name] = account
    if not accounts:
        raise errors.UsageError(f"users {path}: no user; beanstalkd-py console-user prints a line")
    return accounts


@cache
def _hash_of_nobody() -> str:
    from werkzeug.security import generate_password_hash

    return generate_password_hash("", "scrypt:32768:8:1")


def _checked_hash(password_hash: str) -> str:
    """Raises ValueError for a hash that no password can match.

    Computes none, because that takes 50 ms, and the parent of a server reads the file, too.
    """
    found = _HASH.fullmatch(password_hash)
    cost = int(found["cost"] or 2) if found else 0
    if cost < 2 or cost & (cost - 1):  # scrypt needs a power of two
        raise ValueError("the hash is not one of console-user")
    return password_hash


def verify(accounts: Mapping[str, Account], name: str, password: str) -> Account | None:
    """Return the account of this name and password. Takes the same time for unknown names."""
    from werkzeug.security import check_password_hash

    account, of_nobody = accounts.get(name), _hash_of_nobody()
    matches = check_password_hash(account.password_hash if account else of_nobody, password)
    return account if matches else None
