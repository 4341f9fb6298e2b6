"""The path of a server's control socket, by the address on which it serves.

Addresses are text: HOST:PORT or unix:PATH.
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
    """Return the folders for a control socket, the preferred first; other users cannot write there.

    systemd sets RUNTIME_DIRECTORY for a service, and XDG_RUNTIME_DIR for a user.
    """
    of_service = environ.get("RUNTIME_DIRECTORY", "").split(":")
    of_user = environ.get("XDG_RUNTIME_DIR", "")
    return [*(Path(path) for path in (*of_service, of_user) if path), SYSTEM_FOLDER]


def file_name(address: str) -> str:
    """Return the name of the socket file, which differs for each local address."""
    if address.startswith(UNIX_PREFIX):
        import hashlib

        # A hash, because the path can be too long for a file name.
        path = os.fsencode(Path(address.removeprefix(UNIX_PREFIX)).absolute())
        return f"{NAME}-{hashlib.sha256(path).hexdigest()[:16]}.sock"
    return f"{NAME}-{address.rpartition(':')[2]}.sock"


def path_to_listen(address: str, environ: Mapping[str, str]) -> Path | None:
    """Return the path for a server's socket, or None if no folder is writable."""
    for folder in folders(environ):
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return folder / file_name(address)
    return None


def paths_to_try(address: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the possible paths of the socket of the server on this address."""
    services = sorted(SYSTEM_FOLDER.glob(f"{NAME}*/{file_name(address)}"))
    return [folder / file_name(address) for folder in folders(environ)] + services
