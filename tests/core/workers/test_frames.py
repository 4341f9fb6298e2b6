"""The core's frames compared with those of msgpack."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beanstalkd_py.core._core import ffi, lib
from beanstalkd_py.server.worker.frames import Kind

OTHER = -1
HEAD_MAX, COUNT_MAX, CENSUS_MAX = 16, 256, 40
LARGE = 1 << 31
WITH_BYTES = (Kind.FEED, Kind.OUTPUT)
WITH_A_NUMBER = (Kind.CLOSE, Kind.ENDED, Kind.SYNC, Kind.SYNCED, Kind.ARRIVED)

sessions = st.integers(1, 2**64 - 1)
numbers = st.integers(0, 2**64 - 1)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=300)
    | st.text(max_size=40)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=40,
)


def exactly(data: bytes) -> Any:
    """These bytes in memory of just that size, so that a sanitizer sees what reads behind them."""
    return ffi.new("char[]", len(data)) if not data else ffi.new(f"char[{len(data)}]", data)


def end_of(data: bytes) -> int:
    return int(lib.bs_frame_end(ffi.new("bs_frame_scan *"), exactly(data), len(data)))


def read(data: bytes) -> tuple[Any, ...]:
    assert end_of(data) == len(data)
    memory = exactly(data)
    frame = lib.bs_frame_read(memory, len(data))
    content = bytes(ffi.buffer(frame.bytes, frame.length)) if frame.bytes else b""
    return frame.kind, frame.session, content, frame.users, frame.watchers, frame.number


# --- where a frame ends -------------------------------------------------------------------------


@given(value=values, behind=st.binary(max_size=3))
def test_the_end_is_found_whatever_follows(value: Any, behind: bytes) -> None:
    packed = msgpack.packb(value)
    assert end_of(packed + behind) == len(packed)


@given(value=values)
def test_a_frame_that_is_cut_has_no_end(value: Any) -> None:
    packed = msgpack.packb(value)
    assert [end_of(packed[:cut]) for cut in range(len(packed))] == [0] * len(packed)


@given(value=values, cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_the_search_goes_on_where_it_stopped(value: Any, cuts: list[int]) -> None:
    packed = msgpack.packb(value)
    scan = ffi.new("bs_frame_scan *")
    for cut in sorted(cut for cut in cuts if cut < len(packed)):
        assert lib.bs_frame_end(scan, exactly(packed[:cut]), cut) == 0
    assert lib.bs_frame_end(scan, exactly(packed), len(packed)) == len(packed)


@given(data=st.binary(max_size=64))
@example(b"\xdd\xff\xff\xff\xff" * 9)
@example(b"\x93\xcf\x00")
@example(b"\xc6\xff\xff\xff\xff")
@example(b"\xc1")
def test_any_bytes(data: bytes) -> None:
    """What msgpack takes as a value is one here, of the same length, and nothing crashes."""
    size = end_of(data)
    assert -200 < size <= len(data)
    if size > 0:
        memory = exactly(data[:size])
        frame = lib.bs_frame_read(memory, size)
        assert frame.kind == OTHER or frame.length < size
    unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="replace", timestamp=0)
    unpacker.feed(data)
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        assert size <= 0
    except ValueError:
        pass  # msgpack wants more of a value than its length
    else:
        assert size == unpacker.tell()


def test_more_than_any_frame_has(many: int = 7) -> None:
    assert end_of(b"\xc6" + struct.pack(">I", LARGE)) < 0
    assert end_of(b"\xdd\xff\xff\xff\xff" * many) == 0  # arrays in arrays: the end may come


# --- the core's frames --------------------------------------------------------------------------


def every_int(value: int) -> list[bytes]:
    """All the ways to write a number that is not negative."""
    ways = [bytes([value])] if value < 128 else []
    for code, form in enumerate("BHIQbhiq", start=0xCC):
        try:
            ways.append(bytes([code]) + struct.pack(">" + form, value))
        except struct.error:
            continue
    return ways


def every_bin(data: bytes) -> list[bytes]:
    ways = [(0xC4, ">B"), (0xC5, ">H"), (0xC6, ">I")]
    return [
        bytes([code]) + struct.pack(form, len(data)) + data
        for code, form in ways
        if len(data) < 256 ** struct.calcsize(form)
    ]


def every_array(values: int) -> list[bytes]:
    return [
        bytes([0x90 + values]),
        b"\xdc" + struct.pack(">H", values),
        b"\xdd" + struct.pack(">I", values),
    ]


@given(session=sessions, data=st.binary(max_size=300), kind=st.sampled_from(WITH_BYTES))
def test_feed_and_output(session: int, data: bytes, kind: Kind) -> None:
    packed = msgpack.packb([kind, session, data])
    out = ffi.new("char[]", HEAD_MAX)
    size = lib.bs_frame_write_head(out, kind, session, len(data))
    assert bytes(ffi.buffer(out, size)) + data == packed
    for array in every_array(3):
        for number in every_int(kind):
            for home in every_int(session):
                for content in every_bin(data):
                    frame = array + number + home + content
                    assert read(frame) == (kind, session, data, 0, 0, 0)


@pytest.mark.parametrize("size", [0, 255, 256, 48 * 1024, 65535, 65536])
def test_lengths_on_the_edge(size: int) -> None:
    packed = msgpack.packb([Kind.FEED, 1, bytes(size)])
    out = ffi.new("char[]", HEAD_MAX)
    head = lib.bs_frame_write_head(out, Kind.FEED, 1, size)
    assert bytes(ffi.buffer(out, head)) + bytes(size) == packed
    assert read(packed)[2] == bytes(size)


@given(session=sessions, kind=st.sampled_from(WITH_A_NUMBER))
def test_frames_with_one_number(session: int, kind: Kind) -> None:
    packed = msgpack.packb([kind, session])
    out = ffi.new("char[]", HEAD_MAX)
    assert bytes(ffi.buffer(out, lib.bs_frame_write_end(out, kind, session))) == packed
    assert read(packed) == (kind, session, b"", 0, 0, 0)


@given(
    tube=st.binary(min_size=1, max_size=200),
    users=st.integers(0, 2**32 - 1),
    watchers=st.integers(0, 2**32 - 1),
    holds=st.integers(0, 2**32 - 1),
    number=numbers,
)
def test_count(tube: bytes, users: int, watchers: int, holds: int, number: int) -> None:
    packed = msgpack.packb([Kind.COUNT, tube, users, watchers, holds, number])
    out = ffi.new("char[]", COUNT_MAX)
    size = lib.bs_frame_write_count(out, tube, len(tube), users, watchers, holds, number)
    assert bytes(ffi.buffer(out, size)) == packed
    assert read(packed) == (Kind.COUNT, 0, tube, users, watchers, number)
    assert lib.bs_frame_read(exactly(packed), len(packed)).holds == holds


@given(census=st.tuples(numbers, numbers, numbers, numbers))
def test_census(census: tuple[int, int, int, int]) -> None:
    packed = msgpack.packb([Kind.CENSUS, *census])
    out = ffi.new("char[]", CENSUS_MAX)
    assert bytes(ffi.buffer(out, lib.bs_frame_write_census(out, *census))) == packed
    memory = exactly(packed)
    frame = lib.bs_frame_read(memory, len(packed))
    assert frame.kind == Kind.CENSUS
    assert (frame.adopted, frame.producers, frame.workers, frame.moves) == census


@pytest.mark.slow
@given(frame=st.lists(values, max_size=6))
@example([Kind.FEED, 0, b"x"])
@example([Kind.FEED, -1, b"x"])
@example([Kind.FEED, 1, "x"])
@example([Kind.FEED, 1])
@example([Kind.FEED, 1, b"x", 1])
@example([-1, 1, b"x"])
@example([False, 1, b"x"])
@example([Kind.CLOSE, 1.0])
@example([Kind.COUNT, b"t", 1, 1, 0, -1])
@example([Kind.COUNT, 1, b"t", 1, 0, 1])
@example([Kind.CENSUS, 1, 1, 1, -1])
@example([Kind.CENSUS, 1, 1, 1])
@example([Kind.SYNC, 0])
@example([Kind.HEAD, 1, 1])
@example([256, 1, b"x"])
def test_all_other_frames_are_not_the_cores(frame: list[Any]) -> None:
    kind = read(msgpack.packb(frame))[0]
    match frame:
        case [int(first), int(session), bytes()] if first in WITH_BYTES and session > 0:
            ours = first is not False
        case [int(first), int(session)] if first in WITH_A_NUMBER and session > 0:
            ours = first is not True and session is not True
        case [Kind.COUNT, bytes(), *rest] | [Kind.CENSUS, *rest] if len(rest) == 4:
            ours = all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in rest)
        case _:
            ours = False
    if ours and isinstance(frame[1], bool):
        ours = False
    assert (kind != OTHER) == ours
