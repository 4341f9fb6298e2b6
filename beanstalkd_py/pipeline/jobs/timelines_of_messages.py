"""Lives out of messages of a history, each of which has all of one in its property `timeline`.

C reads the text (csrc/columns/timeline_text.c). Knows nothing of Spark; timelines.py makes the
columns that go in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from beanstalkd_py.pipeline._columns import ffi, lib
from beanstalkd_py.pipeline.jobs.timeline_columns import COUNTERS, Told, new_lives

KNOWN = ("host", "shard", "id", "tube", "priority", "ttr", "body_size", "state", *COUNTERS)
"""Columns that come out as they go in. Besides there are timeline and truncated."""


def lives_of_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each message."""
    lives = new_lives()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        # Without an offset, and bits in whole bytes.
        text = pa.concat_arrays([batch.column("timeline"), pa.array([], pa.string())])
        truncated = pc.fill_null(batch.column("truncated"), False).cast(pa.int8()).cast(pa.bool_())
        _, ends, data = text.buffers()
        result = lib.bc_histories_of_timelines(
            lives,
            ffi.cast("const char *", data.address if data is not None else 0),
            ffi.cast("const int32_t *", ends.address + 4 * text.offset),
            ffi.cast("const uint8_t *", truncated.buffers()[1].address),
            batch.num_rows,
        )
        if result < 0:
            raise MemoryError
        yield Told(lives).batch({name: batch.column(name) for name in KNOWN})
