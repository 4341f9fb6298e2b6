"""The protocol's rule for tube names."""

from __future__ import annotations

import re

TUBE_NAMES = "1 to 200 letters, digits or - + / ; . $ _ ( ), not starting with -"

_NAME = re.compile(r"[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199}")


def is_tube_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
