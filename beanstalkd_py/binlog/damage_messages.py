"""Descriptions of damage in binlog files, in the wording of the server's log."""

from __future__ import annotations

TORN = "the last entry was not written to its end"


def unreadable_file(why: str) -> str:
    return f"unreadable file: {why}"


def other_version(version: int) -> str:
    return unreadable_file(f"its version is {version}, not 7 or 5")


def cut_file(length: int, stated_in: int) -> str:
    """Describe a file that ends before its recorded length."""
    return f"the file is cut: its entries ended at {length} when binlog.{stated_in} was written"


def unsynced_file(length: int, stated_in: int) -> str:
    """Describe a file that was never synced and lost its end at a reboot."""
    return (
        f"entries are lost: they ended at {length} when binlog.{stated_in} was written,"
        " but were never synced (-F), and this is another boot"
    )


def unreadable_entry(why: str, next_offset: int, size: int) -> str:
    """Describe skipped bytes; reading continues at `next_offset` of `size` bytes."""
    what = f"unreadable entry: {why}"
    if next_offset < size:
        return f"{what}; reading goes on at {next_offset}"
    return f"{what}; the rest of the file is lost"
