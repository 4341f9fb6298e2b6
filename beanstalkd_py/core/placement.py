"""The placement of tubes on shards."""

from __future__ import annotations

from beanstalkd_py.core._core import ffi, lib


def shard_of(tube: bytes, workers: int, colocate: bytes | None = None) -> int:
    """Return the shard of a tube among `workers`."""
    return int(
        lib.bs_shard_of(tube, len(tube), workers, ffi.NULL if colocate is None else colocate)
    )
