"""System calls of a process about itself: user, limits, end with the parent."""

from __future__ import annotations

import os
import pwd
import resource
import signal

from beanstalkd_py import errors

NO_DESCRIPTOR_LIMIT = 1 << 30
PR_SET_PDEATHSIG = 1


def find_user(name: str) -> pwd.struct_passwd:
    """Return the account. Raises UsageError if there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise errors.UsageError(f"option -u: user {name!r} does not exist") from None


def become_user(user: pwd.struct_passwd) -> None:
    """Set user, group and supplementary groups. Raises UsageError if not permitted."""
    if os.getuid() == os.geteuid() == user.pw_uid and os.getgid() == user.pw_gid:
        return
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except OSError as error:
        raise errors.UsageError(
            f"option -u: cannot become user {user.pw_name!r}: {error.strerror};"
            " start as root or omit -u"
        ) from error


def raise_file_size_limit(needed: int) -> None:
    """Raise RLIMIT_FSIZE to its maximum. Raises UsageError if that is below `needed` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise errors.UsageError(
            f"file size limit (ulimit -f) is {hard} bytes, but the server needs {needed};"
            " raise the limit"
        )


def raise_descriptor_limit() -> int:
    """Raise RLIMIT_NOFILE to its maximum, also for child processes; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return NO_DESCRIPTOR_LIMIT if soft == resource.RLIM_INFINITY else soft


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. Raises OSError."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
