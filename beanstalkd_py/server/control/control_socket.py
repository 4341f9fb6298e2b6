"""Opens the control socket, before the server drops privileges and imports slow modules."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.control.socket_path import path_to_listen
from beanstalkd_py.server.accept.addresses import UNIX_PATH_MAX, UnixAddress
from beanstalkd_py.server.accept.listeners import Listener, bind
from beanstalkd_py.server.logging.setup import LOGGER

NONE = "none"


def open_control(
    option: str | None, first_listener: Listener, user: pwd.struct_passwd | None
) -> Listener | str:
    """Return the socket at the path `option` or at the default path, owned by `user`.

    Returns a reason instead if `option` is NONE, or the default path is not usable. Raises
    AddressError.
    """
    if option == NONE:
        return "--control none"
    default = path_to_listen(str(first_listener), os.environ)
    path = Path(option) if option is not None else default
    if path is None:
        return "no folder for it is writable; give --control PATH"
    try:
        listener = _listen(path)
        if user is not None:
            _change_owner(path, listener, user)
    except errors.AddressError as error:
        if option is not None:
            raise
        return str(error)
    LOGGER.info("control socket %s", path)
    return listener


def _listen(path: Path) -> Listener:
    if len(os.fsencode(path)) > UNIX_PATH_MAX:
        raise errors.AddressError(f"the control socket's path is too long: {path}")
    # The file gets its final mode at once, so that other users can never connect.
    mask = os.umask(0o177)
    try:
        return bind(UnixAddress(os.fspath(path)))
    finally:
        os.umask(mask)


def _change_owner(path: Path, listener: Listener, user: pwd.struct_passwd) -> None:
    """Change the owner of the socket, but not of a file that another user has put in its place."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if not stat.S_ISSOCK(status.st_mode) or status.st_nlink > 1:
                raise OSError(errno.EEXIST, "another user has replaced it")
            os.chown(f"/proc/self/fd/{fd}", user.pw_uid, user.pw_gid)
        finally:
            os.close(fd)
    except OSError as error:
        listener.close()
        text = f"cannot give the control socket {path} to {user.pw_name}: {error.strerror}"
        raise errors.AddressError(text) from error
