"""What damage of a binlog file is called, in the words of a server's start. Imports nothing."""

from __future__ import annotations

TORN = "the last entry was not written to its end"


def unreadable_file(why: str) -> str:
    """Of a file that cannot be read at all."""
    return f"unreadable file: {why}"


def other_version(version: int) -> str:
    """Of a file that begins with another version than there is a reader for."""
    return unreadable_file(f"its version is {version}, not 7 or 5")


def cut_file(length: int, stated_in: int) -> str:
    """Of a file that ends before it did when a later one was written."""
    return f"the file is cut: its entries ended at {length} when binlog.{stated_in} was written"


def unsynced_file(length: int, stated_in: int) -> str:
    """Of the same where nothing was synced, after another boot: what a power cut can take."""
    return (
        f"entries are lost: they ended at {length} when binlog.{stated_in} was written,"
        " but were never synced (-F), and this is another boot"
    )


def unreadable_entry(why: str, next_offset: int, size: int) -> str:
    """Of a place that is left out; reading goes on at `next_offset` of `size` bytes."""
    what = f"unreadable entry: {why}"
    if next_offset < size:
        return f"{what}; reading goes on at {next_offset}"
    return f"{what}; the rest of the file is lost"
