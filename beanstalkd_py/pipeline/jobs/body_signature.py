"""What bodies of the same kind have in common, as a line of text. Knows bytes, and no Spark.

Bodies of the same code differ by what is in them: numbers, ids, addresses. So these are left out,
and what says which code it was is kept: the name of a class or a type, and the names of fields.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping

LENGTH = 80
"""Characters that are looked at of text, and that are kept of a name or of all fields."""
SAMPLE_BYTES = 200

NAMES = (
    *("displayName", "wrapped", "job_class", "class", "commandName", "job", "task"),
    *("type", "event", "action", "kind", "name"),
)
"""Fields of JSON that say which code a job is for, the most telling first: those of Laravel,
ActiveJob, Sidekiq and Resque, Celery, and what people use."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PHP_OBJECT = re.compile(r'O:\d+:"([^"]{1,200})":')
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_NUMBER = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")
_BEFORE_CUTTING = 8 * LENGTH


def signature(body: bytes) -> str:
    """The same for bodies of the same kind.

    Of a JSON object: the value of the first of NAMES that it has as text, and the names of its
    fields. Of an object of PHP: its class. Of other text: its first characters, with N for each
    number, H for hexadecimal and for UUIDs, and L for what is long and has no space in it. Of what
    is no text: how long it is, as a power of two.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _binary(body)
    fields = _json_object(text)
    if fields is not None:
        return _of_fields(fields)
    php = _PHP_OBJECT.match(text)
    if php is not None:  # its private fields have zeros in their names
        return f"PHP {php[1][:LENGTH]}"
    return _binary(body) if _CONTROLS.search(text) else _alike(text)


def sample(body: bytes) -> str:
    """The first bytes as text. What is none is shown as U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(body[:SAMPLE_BYTES], final=len(body) <= SAMPLE_BYTES)


def _binary(body: bytes) -> str:
    return f"binary, up to {1 << max(len(body) - 1, 0).bit_length()} bytes"


def _json_object(text: str) -> Mapping[str, object] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # nested deeper than anybody reads it
        return None
    return found if isinstance(found, dict) else None


def _of_fields(fields: Mapping[str, object]) -> str:
    names = ", ".join(sorted({_alike(name) for name in fields}))
    shown = f"{{{_cut(names)}}}"
    for name in NAMES:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return f"{name}={_alike(value)} {shown}"
    return shown


def _alike(text: str) -> str:
    text = text[:_BEFORE_CUTTING].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _SPACE.sub(" ", text).strip()
    text = _UUID.sub("H", text)
    text = _HEX.sub("H", text)
    text = _LONG.sub("L", text)
    return _cut(_NUMBER.sub("N", text))


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
