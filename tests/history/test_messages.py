"""Messages as bytes: records compared with worked examples, and rejected messages."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from history.stores import BY_HAND, SMALL, given, opened
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as some

from beanstalkd_py.errors import MessageRefusedError
from beanstalkd_py.history._store import ffi, lib
from beanstalkd_py.history.message import (
    Message,
    Stored,
    decode_properties,
    encode_properties,
    java_hash,
    key_hash,
    pack_items,
    unpack_record,
)
from beanstalkd_py.history.options import Options, Sizes

EXAMPLE = Message(
    topic="mails",
    body=b"to=ann",
    properties={"KEYS": "7", "TAGS": "done"},
    queue_id=3,
    flag=-2,
    born_timestamp=0x0102030405060708,
    born_host=("10.1.2.3", 40001),
    store_timestamp=0x1112131415161718,
    store_host=("127.0.0.1", 10911),
    reconsume_times=5,
    prepared_offset=9,
)


def log_of(tmp_path, *messages: Message, options: Options = BY_HAND) -> bytes:
    with opened(tmp_path / "store", options) as store:
        store.append(messages)
        return (tmp_path / "store/commitlog" / ("0" * 20)).read_bytes()


def test_a_record_of_version_1_field_by_field(tmp_path):
    log = log_of(tmp_path, EXAMPLE)
    expected = b"".join(
        (
            bytes.fromhex("00000077"),  # total size: 119 bytes
            bytes.fromhex("daa320a7"),
            struct.pack(">I", zlib.crc32(b"to=ann") & 0x7FFFFFFF),
            bytes.fromhex("00000003"),
            bytes.fromhex("fffffffe"),
            bytes.fromhex("0000000000000000"),  # queue offset
            bytes.fromhex("0000000000000000"),  # offset
            bytes.fromhex("00000000"),
            bytes.fromhex("0102030405060708"),
            bytes.fromhex("0a010203 00009c41"),
            bytes.fromhex("1112131415161718"),
            bytes.fromhex("7f000001 00002a9f"),
            bytes.fromhex("00000005"),
            bytes.fromhex("0000000000000009"),
            bytes.fromhex("00000006") + b"to=ann",
            b"\x05mails",
            b"\x00\x11KEYS\x017\x02TAGS\x01done\x02",
        )
    )
    assert log[: len(expected)] == expected
    assert log == expected.ljust(SMALL.segment_bytes, b"\0")


@pytest.mark.parametrize(
    ("topic", "magic", "length"),
    [
        ("x" * 127, "daa320a7", b"\x7f"),
        ("x" * 128, "daa320ab", b"\x00\x80"),
        ("ä" * 63 + "x", "daa320a7", b"\x7f"),
        (
            "ä" * 64,
            "daa320ab",
            b"\x00\x80",
        ),  # 64 characters, which RocketMQ's version 1 would corrupt
    ],
)
def test_a_topic_longer_than_127_bytes_needs_version_2(tmp_path, topic, magic, length):
    log = log_of(tmp_path, Message(topic=topic))
    assert log[4:8].hex() == magic
    assert log[88 : 88 + len(length)] == length
    assert log[88 + len(length) :].startswith(topic.encode())


def test_hosts_of_ipv6_take_16_bytes_and_set_their_flags(tmp_path):
    log = log_of(tmp_path, Message(topic="t", born_host=("2001:db8::7", 1), store_host=("::1", 2)))
    assert log[:4] == struct.pack(">i", 91 + 1 + 12 + 12)
    assert log[36:40] == bytes.fromhex("00000030")
    assert log[48:68] == bytes.fromhex("20010db8000000000000000000000007 00000001")
    assert log[76:96] == bytes.fromhex("00000000000000000000000000000001 00000002")


def test_an_empty_body_has_the_checksum_zero(tmp_path):
    assert log_of(tmp_path, Message(topic="t"))[8:12] == bytes(4)


def test_the_crc_property_is_last_with_reversed_digits(tmp_path):
    sizes = Sizes(4096, 16, 8, 32, property_crc=True)
    options = Options(sizes=sizes, background=False)
    log = log_of(tmp_path, EXAMPLE, options=options)
    size = struct.unpack(">i", log[:4])[0]
    assert size == 119 + 20
    digits = f"{zlib.crc32(log[: size - 20]) & 0x7FFFFFFF:010d}"[::-1]
    assert log[size - 20 : size] == b"__CRC32#\x01" + digits.encode() + b"\x02"


@for_all(some.text(), some.text())
def test_hashes_are_those_of_java(text, more):
    text = text.encode("utf-8", "ignore").decode()
    expected = 0
    for high, low in zip(*[iter(text.encode("utf-16-be"))] * 2, strict=True):
        expected = (31 * expected + (high << 8) + low) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
        ("done", 3089282),
        ("buried", -1377758231),
        ("\u540d", 21517),
        ("\U0001d4b3", 1772318),
        ("", 0),
    ],
)
def test_hashes_computed_by_java(text, code):
    assert java_hash(text) == code


def test_the_hash_of_a_key_is_never_negative():
    assert key_hash("t", "Aa") == key_hash("t", "BB") == abs(java_hash("t#Aa"))
    for number in range(1000):
        assert key_hash("tube", str(number)) == abs(java_hash(f"tube#{number}"))
    assert java_hash("polygenelu" + "bricants") == -(2**31)


@for_all(some.binary(max_size=200), some.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_zlib(data, start):
    assert lib.hs_crc32(start, data, len(data)) == zlib.crc32(data, start)


@for_all(some.binary(max_size=30))
def test_utf_8_is_validated_as_in_python(data):
    try:
        data.decode("utf-8")
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    assert bool(lib.hs_is_utf8(data, len(data))) == is_utf8


def test_pairs_without_name_or_value_are_dropped_as_java_does():
    raw = b"A\x011\x02\x01x\x02B\x01\x02\x02noequals\x02C\x01last\x01x"
    assert decode_properties(raw) == {"A": "1", "C": "last\x01x"}


@pytest.mark.parametrize(
    ("message", "expected_message"),
    [
        (Message(topic=""), "topic"),
        (Message(topic="a/b"), "topic"),
        (Message(topic=".."), "topic"),
        (Message(topic="a\0"), "topic"),
        (Message(topic="x" * 256), "topic"),
        (Message(topic="t", properties={"A": "x" * 32766}), "properties"),
        (Message(topic="t", properties={"A": "1\x022"}), "property text"),
        (Message(topic="t", properties={"A": ""}), "property text"),
        (Message(topic="t", properties={"A": "x\0y"}), "zeros"),
        (Message(topic="t", body=bytes(4 * 2**20 + 1)), "body"),
        (Message(topic="t", body=bytes(4096)), "does not fit into a file"),
        (Message(topic="t", queue_id=-1), "queue id"),
        (Message(topic="t", sys_flag=128), "inner batch"),
        (Message(topic="t", flag=2**31), "out of range"),
        (Message(topic="t", born_host=("nowhere", 1)), "nowhere"),
    ],
)
def test_an_invalid_message_rejects_the_whole_batch(tmp_path, message, expected_message):
    with opened(tmp_path / "store") as store:
        with pytest.raises(MessageRefusedError, match=expected_message) as refused:
            store.append([Message(topic="good"), message])
        assert refused.value.number == 1
        assert store.log.end == 0
        assert store.append([Message(topic="good")]).queue_offsets == [0]


def test_items_with_contradictory_sizes_are_rejected(tmp_path):
    dice = random.Random(7)
    with opened(tmp_path / "store") as store:
        for _ in range(300):
            with pytest.raises(MessageRefusedError):
                store.append(dice.randbytes(dice.randrange(1, 200)))
        assert store.log.end == 0


_texts = some.text(
    some.characters(exclude_categories=["Cs"], exclude_characters="\0\x01\x02"), min_size=1
)
_hosts = some.tuples(
    some.one_of(some.ip_addresses(v=4), some.ip_addresses(v=6)).map(str), some.integers(0, 65535)
)
_int32 = some.integers(-(2**31), 2**31 - 1)
_int64 = some.integers(-(2**63), 2**63 - 1)
_messages = some.builds(
    Message,
    topic=some.from_regex(r"[%|a-zA-Z0-9_-]{1,255}", fullmatch=True),
    body=some.binary(max_size=500),
    properties=some.dictionaries(_texts, _texts, max_size=4),
    queue_id=some.integers(0, 3),
    flag=_int32,
    sys_flag=some.sampled_from([0, 1, 2, 4, 8, 12, 64, 0x100]),
    born_timestamp=_int64,
    born_host=_hosts,
    store_timestamp=some.integers(1, 2**62),
    store_host=_hosts,
    reconsume_times=_int32,
    prepared_offset=_int64,
)


def all_of(message: Message) -> tuple[object, ...]:
    rest = (message.store_timestamp, message.store_host, message.prepared_offset)
    return (*given(message), *rest)


@for_all(some.lists(_messages, max_size=12))
@settings(max_examples=50)
def test_every_message_is_read_as_written(tmp_path_factory, messages):
    folder = tmp_path_factory.mktemp("store")
    with opened(folder) as store:
        appended = store.append(messages)
        stored = list(store.scan())
        assert [all_of(each) for each in stored] == [all_of(each) for each in messages]
        assert appended.offsets == [each.offset for each in stored]
        assert appended.queue_offsets == [each.queue_offset for each in stored]
        assert store.last() == (stored[-1] if stored else None)


def read_record(data: bytes) -> tuple[int, Stored | None]:
    """Return the parser's result (HS_FOUND_) for the start of the bytes, and the message."""
    record = ffi.new("hs_record *")
    with ffi.from_buffer("char[]", data) as memory:
        found = lib.hs_record_read(memory, len(data), 0, lib.HS_CHECK_BODY, record)
    sound = found == lib.HS_FOUND_RECORD
    return found, unpack_record(record, memoryview(data)) if sound else None


def test_every_flipped_bit_of_a_record_is_detected_or_harmless(tmp_path):
    """A reader never crashes on damage; checksums protect body, sizes, magic and offset."""
    log = log_of(tmp_path, EXAMPLE)[:119]
    for bit in range(8 * len(log)):
        damaged = bytearray(log)
        damaged[bit // 8] ^= 1 << bit % 8
        found, message = read_record(bytes(damaged))
        at = bit // 8
        if at < 12 or 28 <= at < 36 or 84 <= at < 95 or at in (100, 101):
            assert found != lib.HS_FOUND_RECORD, at
        elif found == lib.HS_FOUND_RECORD:
            assert message is not None


@for_all(some.data())
def test_arbitrary_bytes_are_scanned_and_dispatched_safely(data):
    """Each piece is a record with changed bytes; no access may be out of bounds."""
    log = bytearray(pack_record())
    for _ in range(data.draw(some.integers(0, 6))):
        at = data.draw(some.integers(0, len(log) - 1))
        log[at] = data.draw(some.integers(0, 255))
    piece = bytes(log[: data.draw(some.integers(0, len(log)))])
    queues = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
    dispatch = ffi.gc(lib.hs_dispatch_new(), lib.hs_dispatch_free)
    found, scanned = ffi.new("hs_dispatched *"), ffi.new("hs_scanned *")
    with ffi.from_buffer("char[]", piece) as memory:
        lib.hs_scan(memory, len(piece), 0, 15, ffi.new("hs_record[9]"), 9, scanned)
        assert lib.hs_dispatch_run(dispatch, queues, memory, len(piece), 0, found) == 0
    assert scanned.used in (0, len(log))
    assert found.used in (0, len(log))


def pack_record() -> bytes:
    """Return a record as the log has it."""
    items = pack_items([EXAMPLE], ("127.0.0.1", 1))
    queues = ffi.gc(lib.hs_queues_new(), lib.hs_queues_free)
    limits = ffi.new("hs_limits *", {"max_body": 1000, "segment_bytes": 4096})
    encoding, out = ffi.new("hs_encoding *", {"segment_end": 4096}), ffi.new("char[]", 4096)
    with ffi.from_buffer("char[]", items) as given_items:
        lib.hs_encode(queues, limits, given_items, len(items), out, 4096, ffi.NULL, encoding)
    return bytes(ffi.buffer(out, encoding.produced))


def test_properties_are_stored_in_the_order_given():
    assert encode_properties({"B": "1", "A": "2"}) == b"B\x011\x02A\x012\x02"
