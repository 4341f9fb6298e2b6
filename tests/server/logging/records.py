"""Reads the log of a running server as records."""

from __future__ import annotations

import json
from typing import Any

from servers import Server

Record = dict[str, Any]

JSON = ("--log-format", "json")


def records(server: Server) -> list[Record]:
    """Parse all lines, which are JSON objects."""
    lines = server.stderr().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def of(server: Server, *events: str) -> list[Record]:
    """Return the records of these events."""
    return [one for one in records(server) if one.get("event") in events]
