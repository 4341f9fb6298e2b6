"""Where a server's control socket is, by the address on which it serves. Opens nothing.

An address is its text: HOST:PORT or unix:PATH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

NAME = "beanstalkd-py"
ENVIRONMENT = "BEANSTALKD_CONTROL"
UNIX_PREFIX = "unix:"
SYSTEM_FOLDER = Path("/run")


def folders(environ: Mapping[str, str]) -> list[Path]:
    """Where a control socket may be, the best first: none that others may write to.

    RUNTIME_DIRECTORY is systemd's, for a service; XDG_RUNTIME_DIR is a user's own.
    """
    found = [Path(part) for part in environ.get("RUNTIME_DIRECTORY", "").split(":") if part]
    if environ.get("XDG_RUNTIME_DIR"):
        found.append(Path(environ["XDG_RUNTIME_DIR"]))
    found.append(SYSTEM_FOLDER)
    return found


def file_name(address: str) -> str:
    """One name for each address of this machine that a server can have."""
    if address.startswith(UNIX_PREFIX):
        import hashlib

        # A path of its own could be too long for a socket's.
        path = os.fsencode(Path(address.removeprefix(UNIX_PREFIX)).absolute())
        return f"{NAME}-{hashlib.sha256(path).hexdigest()[:16]}.sock"
    return f"{NAME}-{address.rpartition(':')[2]}.sock"


def place_to_listen(address: str, environ: Mapping[str, str]) -> Path | None:
    """The path for a server's socket; None if there is no folder for it."""
    for folder in folders(environ):
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return folder / file_name(address)
    return None


def places_to_ask(address: str, environ: Mapping[str, str]) -> list[Path]:
    """The paths at which the socket of the server on this address may be."""
    services = sorted(SYSTEM_FOLDER.glob(f"{NAME}*/{file_name(address)}"))
    return [folder / file_name(address) for folder in folders(environ)] + services
