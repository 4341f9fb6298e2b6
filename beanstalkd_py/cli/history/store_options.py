"""Which store `history` is about: its options, opening it, and how its errors are told.

It must not know what the commands do with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.output import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beanstalkd_py.history.options import Sizes
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.history.verify import Fault

DAMAGED = 1

AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@dataclass(slots=True)
class Place:
    """What the options of the group say, and whether what was read there was whole."""

    store: Path | None
    index_slots: int | None
    index_entries: int | None
    is_damaged: bool = False
    _later: list[str] | None = None
    """What is told once a pager has ended."""

    @property
    def folder(self) -> Path:
        """ToolUsageError if none was given."""
        if self.store is None:
            raise errors.ToolUsageError(
                "no store is given; use --store DIR before the command, or BEANSTALKD_HISTORY"
            )
        return self.store

    @contextlib.contextmanager
    def reading(self, with_end: bool = True) -> Iterator[StoreReader]:
        """The store, to be read; `with_end` tells what is wrong at its end. StoreError and others.

        ToolUsageError: a mistake.
        """
        from beanstalkd_py.history.reader import StoreReader

        folder = self.folder
        with told(folder), StoreReader.open(folder, self.sizes()) as store:
            if with_end:
                self._tell_end(store)
            yield store

    def _tell_end(self, store: StoreReader) -> None:
        """Of a store that is open, the last record may be in the midst of being written."""
        from beanstalkd_py.history.files import store_lock
        from beanstalkd_py.history.verify import Fault

        if store.fault and store_lock.was_stopped_cleanly(store.folder):
            segments, end = store.log.segments, store.log.end
            start = segments.start_of(end)
            self.tell(Fault(str(segments.path(start)), end - start, store.fault))

    def sizes(self) -> Sizes | None:
        """Those that the options say; None leaves it to the files. StoreUsageError."""
        if self.index_slots is None and self.index_entries is None:
            return None
        if self.index_slots is None or self.index_entries is None:
            raise errors.ToolUsageError("give both --index-slots and --index-entries")
        from beanstalkd_py.history.files.size_detection import infer_sizes
        from beanstalkd_py.history.options import Sizes

        given = Sizes(index_slots=self.index_slots, index_entries=self.index_entries)
        found = infer_sizes(self.folder, given)
        if (found.index_slots, found.index_entries) != (given.index_slots, given.index_entries):
            raise errors.ToolUsageError(
                f"index files of {self.folder} have {found.index_slots} slots and"
                f" {found.index_entries} entries; leave out --index-slots and --index-entries"
            )
        return found

    def tell(self, fault: Fault) -> None:
        """A place that could not be read, on stderr; the command goes on."""
        self.is_damaged = True
        self._say(str(fault))

    def _say(self, text: str) -> None:
        if self._later is None:
            say(text)
        else:
            self._later.append(text)

    @contextlib.contextmanager
    def telling_later(self) -> Iterator[None]:
        """Faults that are met meanwhile are told at the end: a pager has the terminal."""
        texts: list[str] = []
        self._later = texts
        try:
            yield
        finally:
            self._later = None
            for text in texts:
                say(text)

    def tell_index(self, store: StoreReader) -> None:
        """Names index files that cannot be read; keys in them are looked for in the log."""
        for path, what in store.index.unreadable.items():
            self.is_damaged = True
            self._say(f"{path}: {what}; reading the log instead")

    def tell_unreadable(self, store: StoreReader) -> None:
        """Names queues that cannot be read, whose topics are missing from what follows."""
        from beanstalkd_py.history.files.compatibility import unreadable

        for text in unreadable(store.folder):
            self.is_damaged = True
            self._say(text)

    @property
    def status(self) -> int:
        """To leave with."""
        return DAMAGED if self.is_damaged else 0


class StoredTube(click.ParamType):  # type: ignore[type-arg]
    """A tube of the store, completed from what it has."""

    name = "tube"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Whatever was given; `topic_of` looks whether there is such a tube."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Tubes of the store that begin so, and topics that are no tube's."""
        from click.shell_completion import CompletionItem

        from beanstalkd_py.history.files.layout import queue_folders
        from beanstalkd_py.history.topics import unescape

        store = None if ctx.parent is None else ctx.parent.params.get("store")
        topics = {topic for topic, _ in queue_folders(Path(store))} if store else set()
        names = sorted(unescape(topic) or topic for topic in topics)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@contextlib.contextmanager
def told(folder: Path) -> Iterator[None]:
    """A mistake leaves with 2; what the system refuses is one line."""
    try:
        yield
    except errors.StoreUsageError as error:
        hint = " (--index-slots, --index-entries)" if "give the sizes" in str(error) else ""
        raise errors.ToolUsageError(f"{error}{hint}") from error
    except OSError as error:
        where = error.filename or folder
        raise errors.StoreError(f"cannot read history store: {where}: {error.strerror}") from error


def topic_of(store: StoreReader, given: str) -> str:
    """The topic of a tube, or a topic of RocketMQ as it is.

    ToolUsageError if there is neither, or if its queues are of a kind that cannot be read.
    """
    from beanstalkd_py.history.files.compatibility import batch_topics, unreadable
    from beanstalkd_py.history.topics import escape

    topics, of_batches = store.topics(), batch_topics(store.folder)
    for topic in (escape(given) if given else "", given):
        if topic in topics:
            return topic
        if topic in of_batches:
            break
    else:
        of_batches = []
    if of_batches or not topics:
        for text in unreadable(store.folder):
            raise errors.ToolUsageError(
                f"cannot list {given!r}: {text}; 'export' without TUBE reads the log itself"
            )
    raise errors.ToolUsageError(f"{store.folder} has no tube {given!r}; 'topics' lists what it has")
