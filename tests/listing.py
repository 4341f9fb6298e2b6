"""Reads the replies to list-jobs."""

from __future__ import annotations

import re

from wire import CRLF, Client

# The keys of a row, in order.
KEYS = (
    *("id", "state", "pri", "age", "delay", "ttr", "time-left"),
    *("reserves", "timeouts", "releases", "buries", "kicks", "bytes"),
)
PAGE = re.compile(r"---\njobs:(?P<rows> \[\]|(?:\n- \{[^{}\n]*\})+)\nnext: (?P<next>\d+)\n\Z")

Row = dict[str, str]


def page_of(reply: bytes) -> tuple[list[Row], int]:
    """Check the form of a reply; return its rows and the id after which the next page starts."""
    first, text = reply.split(CRLF, 1)
    assert first == b"OK %d" % (len(text) - 2), f"no page: {reply!r}"
    found = PAGE.match(text.removesuffix(CRLF).decode())
    assert found, f"not the form of a page: {reply!r}"
    rows = [row_of(line) for line in found["rows"].split("\n")[1:]]
    return rows, int(found["next"])


def row_of(line: str) -> Row:
    """Return one row as keys and values."""
    row = dict(field.split(": ", 1) for field in line.removeprefix("- {")[:-1].split(", "))
    assert tuple(row) == KEYS
    return row


def all_jobs(client: Client, tube: bytes, state: bytes = b"any", limit: int = 1000) -> list[Row]:
    """Return the rows of all pages."""
    rows: list[Row] = []
    after = 0
    while True:
        page, after = page_of(
            client.ask(b"list-jobs %b %b %d %d\r\n" % (tube, state, after, limit))
        )
        rows += page
        if after == 0:
            return rows
        assert len(page) <= limit
