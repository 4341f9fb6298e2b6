"""Which worker has a tube."""

from __future__ import annotations

from beanstalkd_py.core._core import ffi, lib


def shard_of(tube: bytes, workers: int, colocate: bytes | None = None) -> int:
    """The shard of a tube among `workers`; `colocate` ends the part of its name that decides."""
    return int(
        lib.bs_shard_of(tube, len(tube), workers, ffi.NULL if colocate is None else colocate)
    )
