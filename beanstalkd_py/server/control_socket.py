"""Opening the control socket, before the user is given up and anything heavy is imported."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.control.place import place_to_listen
from beanstalkd_py.server.addresses import UNIX_PATH_MAX, UnixAddress
from beanstalkd_py.server.listeners import Listener, bind
from beanstalkd_py.server.logs import LOGGER

NONE = "none"


def open_control(
    wanted: str | None, serves_on: Listener, user: pwd.struct_passwd | None
) -> Listener | None:
    """The socket at the path `wanted`, or where one is looked for if that is None.

    None for NONE, and if the usual place is not to be had, which is said. `user` is whom the
    server becomes. Raises AddressError.
    """
    if wanted == NONE:
        return None
    usual = place_to_listen(str(serves_on), os.environ)
    path = Path(wanted) if wanted is not None else usual
    if path is None:
        LOGGER.info("no control socket: no folder for it; --control PATH names a place")
        return None
    try:
        listener = _listen(path)
    except errors.AddressError as error:
        if wanted is not None:
            raise
        LOGGER.warning("no control socket: %s", error)
        return None
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
    LOGGER.info("control socket %s", path)
    return listener


def _listen(path: Path) -> Listener:
    if len(os.fsencode(path)) > UNIX_PATH_MAX:
        raise errors.AddressError(f"the control socket's path is too long: {path}")
    # The file must be nobody else's from its first moment on.
    mask = os.umask(0o177)
    try:
        return bind(UnixAddress(os.fspath(path)))
    finally:
        os.umask(mask)
