"""What a process asks of the system for itself: a user, descriptors, an end with its parent."""

from __future__ import annotations

import os
import pwd
import resource
import signal

from beanstalkd_py import errors

NO_DESCRIPTOR_LIMIT = 1 << 30
PR_SET_PDEATHSIG = 1


def find_user(name: str) -> pwd.struct_passwd:
    """The account to become. Raises UsageError for an unknown one."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise errors.UsageError(f"option -u: there is no user {name!r}") from None


def become_user(user: pwd.struct_passwd) -> None:
    """Becomes that user for good, with all its groups. Raises UsageError if not permitted."""
    if os.getuid() == os.geteuid() == user.pw_uid and os.getgid() == user.pw_gid:
        return
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except OSError as error:
        raise errors.UsageError(
            f"option -u: cannot become user {user.pw_name!r}: {error.strerror};"
            " only root may, so start as root or leave -u out"
        ) from error


def raise_file_size_limit(needed: int) -> None:
    """Lifts the limit on the size of files to its maximum. UsageError: that is below `needed`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise errors.UsageError(
            f"the limit on the size of files (ulimit -f) is {hard} bytes, and the server needs"
            f" {needed}; raise it"
        )


def raise_descriptor_limit() -> int:
    """Takes what the hard limit allows, for workers too; how many descriptors that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return NO_DESCRIPTOR_LIMIT if soft == resource.RLIM_INFINITY else soft


def die_with_parent() -> None:
    """From now on this process is killed when its parent ends. Raises OSError."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
