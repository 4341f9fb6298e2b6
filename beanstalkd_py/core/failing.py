"""Negative errno values of the core as exceptions."""

from __future__ import annotations

import os


def raise_errno(result: int) -> int:
    """`result`, unless it is a negative errno: then OSError."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
