"""Tube names as topics, and back. A topic is a folder name with a small alphabet.

Letters, digits, - and _ stay; every other byte becomes %XX. A topic has at most 255 bytes, so the
topic of a longer name is %H and the SHA-256 of the name.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Message

LONGEST = 255
"""Bytes of a topic."""
DIGEST = "%H"
"""Prefix of a topic that is a digest."""

_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_ESCAPED = re.compile(rb"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_BYTE = re.compile(rb"%([0-9A-F]{2})")


def escape(tube: str) -> str:
    """Return the topic of a tube. Raises ValueError if the name is empty."""
    if not tube:
        raise ValueError("a tube has a name")
    name = tube.encode("utf-8", "surrogateescape")
    topic = "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in name)
    return topic if len(topic) <= LONGEST else DIGEST + hashlib.sha256(name).hexdigest()


@lru_cache(maxsize=4096)
def unescape(topic: str) -> str | None:
    """Return the tube of a topic; None for a digest or a topic that no tube has."""
    data = topic.encode("utf-8", "surrogateescape")
    if not _ESCAPED.fullmatch(data):
        return None
    name = _BYTE.sub(lambda match: bytes([int(match[1], 16)]), data)
    tube = name.decode("utf-8", "surrogateescape")
    return tube if escape(tube) == topic else None


def tube_of(message: Message) -> str:
    """Return the tube of a message: the property TUBE, the unescaped topic, or the topic itself."""
    return message.properties.get("TUBE") or unescape(message.topic) or message.topic
