"""Text as HTML: users' bytes stay text whatever they are.

Everything on the page that is not written here comes through `escape`.
"""

from __future__ import annotations

import re
from html import escape as _escape

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff]"
)


def escape(text: str) -> str:
    """Text or the value of an attribute; characters that are not seen are escaped."""
    return _escape(_UNSEEN.sub(_shown, text), quote=True)


def _shown(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element of content that is HTML. `class_` is class, other `_` are `-`."""
    return f"<{name}{_attributes(attributes)}>{content}</{name}>"


def mark(name: str, **attributes: object) -> str:
    """An element of SVG that has no content."""
    return f"<{name}{_attributes(attributes)}/>"


def _attributes(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )


def _short(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is exact enough."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
