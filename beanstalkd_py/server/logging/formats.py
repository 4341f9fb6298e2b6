"""The names of the log's formats, in a file of their own because `log_lines` imports logging."""

from __future__ import annotations

TEXT = "text"
JSON = "json"
FORMATS = (TEXT, JSON)
