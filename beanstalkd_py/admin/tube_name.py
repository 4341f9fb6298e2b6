"""What the protocol takes for a tube's name."""

from __future__ import annotations

import re

TUBE_NAMES = "1 to 200 of letters, digits and - + / ; . $ _ ( ), not beginning with -"

_NAME = re.compile(r"[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199}")


def is_tube_name(text: str) -> bool:
    """Whether a server would take it."""
    return _NAME.fullmatch(text) is not None
