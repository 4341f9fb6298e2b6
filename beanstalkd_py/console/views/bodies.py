"""Bodies of jobs for a page."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

SHOWN_BYTES = 64 * 1024
SHAPE_BYTES = 4096
SHAPE_LENGTH = 200

_VARIABLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-fA-F]{12,}\b|[0-9]+")
# Each run of characters is read once: from everywhere in a long run, it would take 100 ms.
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+")


@dataclass(frozen=True, slots=True)
class Body:
    """The beginning of a body: `text` if it is UTF-8, else `base64`. `size` is of the whole."""

    text: str | None
    base64: str | None
    size: int
    truncated: bool

    @classmethod
    def of(cls, body: bytes, shown: int = SHOWN_BYTES) -> Body:
        part = body[:shown]
        truncated = len(part) < len(body)
        try:
            return cls(part.decode(), None, len(body), truncated)
        except UnicodeDecodeError as error:
            if truncated and error.start >= len(part) - 3:  # the cut is inside of a character
                return cls(part[: error.start].decode(), None, len(body), True)
        return cls(None, base64.b64encode(part).decode(), len(body), truncated)


def shape_of(body: bytes) -> str:
    """Return what bodies of the same kind have in common: numbers, ids and addresses are left out.

    Strings of JSON are left out, too, but not its keys.
    """
    try:
        text = body[:SHAPE_BYTES].decode()
    except UnicodeDecodeError:
        return "binary"
    text = re.sub(r'(:\s*|[\[,]\s*)"(?:[^"\\]|\\.)*"(?!\s*:)', r'\1"…"', text)
    return _VARIABLE.sub("#", _EMAIL.sub("@", text))[:SHAPE_LENGTH]
