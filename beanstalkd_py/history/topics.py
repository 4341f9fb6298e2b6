"""Names of tubes as topics, which are names of folders and have a small alphabet, and back.

Letters, digits, - and _ stay; every other byte is %XX. A topic has at most 255 bytes, so a longer
one is %H and the SHA-256 of the name. This module must not know stores.
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
"""Begins a topic that does not tell its tube."""

_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_ESCAPED = re.compile(rb"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_BYTE = re.compile(rb"%([0-9A-F]{2})")


def escape(tube: str) -> str:
    """The topic of a tube. ValueError if its name is empty."""
    if not tube:
        raise ValueError("a tube has a name")
    name = tube.encode("utf-8", "surrogateescape")
    topic = "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in name)
    return topic if len(topic) <= LONGEST else DIGEST + hashlib.sha256(name).hexdigest()


@lru_cache(maxsize=4096)
def unescape(topic: str) -> str | None:
    """The tube whose topic this is. None: it is none's, or a digest, which does not tell."""
    data = topic.encode("utf-8", "surrogateescape")
    if not _ESCAPED.fullmatch(data):
        return None
    name = _BYTE.sub(lambda found: bytes([int(found[1], 16)]), data)
    tube = name.decode("utf-8", "surrogateescape")
    return tube if escape(tube) == topic else None


def tube_of(message: Message) -> str:
    """The tube's name, as the property TUBE has it; a topic that is no tube's as it is."""
    return message.properties.get("TUBE") or unescape(message.topic) or message.topic
