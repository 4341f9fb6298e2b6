"""Results of the core as Python values: errno values as exceptions, and fields of structs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any

_MESSAGES = {
    errno.EMEDIUMTYPE: "it is not a regular file",  # BS_NOT_REGULAR of csrc/base/file_io.h
    errno.EREMCHG: (  # BS_UNTRUSTED_LINK of csrc/base/folder.h
        "it is a symbolic link of another user, or one is on the way to it; put the file or folder"
        " itself there, or make the link as root"
    ),
    errno.EMLINK: (  # BS_FOREIGN_HARD_LINK of csrc/base/file_io.h
        "it is a hard link to a file of another user than the owner of the folder"
    ),
}


def raise_errno(result: int) -> int:
    """Return `result`; raises OSError if it is a negative errno."""
    if result < 0:
        raise OSError(-result, _MESSAGES.get(-result) or os.strerror(-result))
    return result


def fields_of(struct: Any, names: Iterable[str]) -> list[Any]:
    """Return the values of these fields of a C struct."""
    return [getattr(struct, name) for name in names]
