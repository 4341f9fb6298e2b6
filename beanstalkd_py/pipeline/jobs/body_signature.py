"""Signatures of bodies: a line of text that bodies made by the same code share.

A signature keeps the name of a class or type and the names of fields, and replaces numbers, ids and
other values. Imports nothing of Spark.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping

LENGTH = 80
"""Maximum length of text, of a name and of the list of fields."""
SAMPLE_BYTES = 200

NAMES = (
    *("displayName", "wrapped", "job_class", "class", "commandName", "job", "task"),
    *("type", "event", "action", "kind", "name"),
)
"""JSON fields that name the code of a job, the most specific first: those of Laravel, ActiveJob,
Sidekiq, Resque and Celery, and common ones."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PHP_OBJECT = re.compile(r'O:\d+:"([^"]{1,200})":')
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")
_BEFORE_CUTTING = 8 * LENGTH


def signature(body: bytes) -> str:
    """Return the signature of a body.

    For a JSON object: the first field of NAMES with text, and the names of its fields. For a PHP
    object: its class. For other text: its first characters, with N for numbers, H for hexadecimal
    numbers and UUIDs, and L for long words. For binary data: its length, up to a power of two.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _binary(body)
    fields = _json_object(text)
    if fields is not None:
        return _of_fields(fields)
    php = _PHP_OBJECT.match(text)
    if php is not None:  # before the check for binary data: private fields have NUL in their names
        return f"PHP {php[1][:LENGTH]}"
    return _binary(body) if _CONTROLS.search(text) else _generalized(text)


def sample(body: bytes) -> str:
    """Return the first bytes as text, with U+FFFD for invalid ones."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(body[:SAMPLE_BYTES], final=len(body) <= SAMPLE_BYTES)


def _binary(body: bytes) -> str:
    return f"binary, up to {1 << max(len(body) - 1, 0).bit_length()} bytes"


def _json_object(text: str) -> Mapping[str, object] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # invalid, or nested too deeply
        return None
    return value if isinstance(value, dict) else None


def _of_fields(fields: Mapping[str, object]) -> str:
    names = ", ".join(sorted({_generalized(name) for name in fields}))
    shown = f"{{{_cut(names)}}}"
    for name in NAMES:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return f"{name}={_generalized(value)} {shown}"
    return shown


def _generalized(text: str) -> str:
    text = text[:_BEFORE_CUTTING].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _SPACE.sub(" ", text).strip()
    text = _UUID.sub("H", text)
    text = _HEX.sub("H", text)
    text = _LONG.sub("L", text)
    return _cut(_NUMBER.sub("N", text))


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
