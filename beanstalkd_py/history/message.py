"""Messages as given to a store and as read back. csrc/store encodes and decodes the records."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from beanstalkd_py.errors import MessageRefusedError
from beanstalkd_py.history._store import lib

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"

BORN_IPV6 = 1 << 4
STORE_IPV6 = 1 << 5
TRANSACTION = 3 << 2
PREPARED = 1 << 2
ROLLBACK = 3 << 2

_NAME_END = "\x01"
_PAIR_END = "\x02"
_HEAD = struct.Struct("=IiiiqqqiIHHii16s16sI")
MAGIC_V2 = -626843477

Host = tuple[str, int]
"""An IPv4 or IPv6 address, and a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to store. Timestamps are milliseconds since 1970.

    `store_timestamp` 0 means the time of the append, `store_host` None the store's own.
    """

    topic: str
    body: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = ("127.0.0.1", 0)
    store_timestamp: int = 0
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(Message):
    """A message of the log. `offset` and `size` are bytes; `raw_properties` is the encoded form."""

    offset: int
    size: int
    queue_offset: int
    body_crc: int
    version: int
    raw_properties: bytes = b""

    @property
    def message_id(self) -> str:
        """The id that RocketMQ's tools show: store host and offset in hex."""
        assert self.store_host is not None
        address, port = self.store_host
        return (_packed(address) + struct.pack(">iq", port, self.offset)).hex().upper()

    @property
    def key_words(self) -> list[str]:
        """The words of KEYS."""
        return [word for word in self.properties.get(KEYS, "").split(" ") if word]

    @property
    def keys(self) -> list[str]:
        """The index keys: UNIQ_KEY first, then the words of KEYS."""
        unique = self.properties.get(UNIQ_KEY)
        return self.key_words if unique is None else [unique, *self.key_words]

    def number(self, name: str, most: int = 2**63 - 1) -> int | None:
        """Return a property that is a whole number up to `most`; None for other properties."""
        text = self.properties.get(name, "")
        if not (text.isascii() and text.isdigit()) or len(text) > 19:
            return None
        return int(text) if int(text) <= most else None


# Messages come from few hosts, and these two functions take half of the time to decode one.
@lru_cache(maxsize=4096)
def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


@lru_cache(maxsize=4096)
def _address(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))


def host_text(host: Host | None) -> str | None:
    """Format a host as ADDRESS:PORT or [IPV6]:PORT."""
    if host is None:
        return None
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def java_hash(text: str) -> int:
    """Return Java's String.hashCode, which RocketMQ uses as the tag code."""
    encoded = text.encode("utf-8", "surrogatepass")
    return lib.hs_java_hash(0, encoded, len(encoded))


def key_hash(topic: str, key: str) -> int:
    """Return the index hash for a key of a topic."""
    code = java_hash(f"{topic}#{key}")
    return 0 if code == -(2**31) else abs(code)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties. Raises ValueError if a name or value is empty or contains 0x01 or 0x02."""
    for text in (*properties.keys(), *properties.values()):
        if not text or _NAME_END in text or _PAIR_END in text:
            raise ValueError(f"property text {text!r} is empty or has the bytes 1 or 2 in it")
    pairs = (f"{name}{_NAME_END}{value}{_PAIR_END}" for name, value in properties.items())
    return "".join(pairs).encode("utf-8")


def decode_properties(raw: bytes) -> dict[str, str]:
    """Decode properties as RocketMQ does: pairs without name or value are dropped."""
    properties = {}
    for pair in raw.decode("utf-8", "replace").split(_PAIR_END):
        name, separator, value = pair.partition(_NAME_END)
        if separator and name and value:
            properties[name] = value
    return properties


def pack_item(message: Message, store_host: Host) -> bytes:
    """Encode a message as `hs_item` of csrc/store/store.h. Raises ValueError."""
    born_address, born_port = message.born_host
    store_address, store_port = message.store_host or store_host
    born_ip, store_ip = _packed(born_address), _packed(store_address)
    sys_flag = message.sys_flag & ~(BORN_IPV6 | STORE_IPV6)
    sys_flag |= (BORN_IPV6 if len(born_ip) == 16 else 0) | (
        STORE_IPV6 if len(store_ip) == 16 else 0
    )
    topic = message.topic.encode("utf-8")
    if isinstance(message, Stored):
        properties = message.raw_properties
    else:
        properties = encode_properties(message.properties)
    length = _HEAD.size + len(topic) + len(properties) + len(message.body)
    padding = -length % 8
    try:
        head = _HEAD.pack(
            length + padding,
            message.queue_id,
            message.flag,
            sys_flag,
            message.born_timestamp,
            message.store_timestamp,
            message.prepared_offset,
            message.reconsume_times,
            len(message.body),
            len(topic),
            len(properties),
            born_port,
            store_port,
            born_ip,
            store_ip,
            0,
        )
    except struct.error as error:
        raise ValueError(f"a field is out of range: {error}") from error
    return b"".join((head, topic, properties, message.body, bytes(padding)))


def pack_items(messages: Iterable[Message], store_host: Host) -> bytes:
    """Encode a batch. MessageRefusedError names the first message that cannot be encoded."""
    items = []
    for number, message in enumerate(messages):
        try:
            items.append(pack_item(message, store_host))
        except ValueError as error:
            raise MessageRefusedError(f"message {number}: {error}", number) from error
    return b"".join(items)


def _unpack_host(data: memoryview, at: int, is_v6: bool) -> Host:
    width = 16 if is_v6 else 4
    (port,) = struct.unpack_from(">i", data, at + width)
    return _address(bytes(data[at : at + width])), port


def unpack_record(record: Any, data: memoryview) -> Stored:
    """Decode a record found by `hs_record_read` or `hs_scan`; `data` begins with the record."""

    def part(at: int, length: int) -> bytes:
        return bytes(data[at : at + length])

    raw = part(record.properties_at, record.properties_length)
    return Stored(
        topic=part(record.topic_at, record.topic_length).decode("utf-8", "replace"),
        body=part(record.body_at, record.body_length),
        properties=decode_properties(raw),
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=_unpack_host(data, record.born_host_at, bool(record.sys_flag & BORN_IPV6)),
        store_timestamp=record.store_timestamp,
        store_host=_unpack_host(data, record.store_host_at, bool(record.sys_flag & STORE_IPV6)),
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        offset=record.offset,
        size=record.size,
        queue_offset=record.queue_offset,
        body_crc=record.body_crc,
        version=2 if record.magic == MAGIC_V2 else 1,
        raw_properties=raw,
    )
