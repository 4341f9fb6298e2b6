"""Puts tools/ on the path: what is tested here lives there, not in the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
