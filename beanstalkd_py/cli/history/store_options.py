"""The store of the `history` commands: its options, opening it, and reports of damage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.output import notice

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from beanstalkd_py.history.options import Sizes
    from beanstalkd_py.history.reader import StoreReader
    from beanstalkd_py.history.verify import Fault

DAMAGED = 1


@dataclass(slots=True)
class StoreOptions:
    """Options of the group, and whether the command has found damage."""

    store: Path | None
    index_slots: int | None
    index_entries: int | None
    is_damaged: bool = False
    _deferred: list[str] | None = None
    """Messages held back while a pager has the terminal."""

    @property
    def folder(self) -> Path:
        """Raises ToolUsageError without --store."""
        if self.store is None:
            raise errors.ToolUsageError(
                "missing store; use --store DIR before the command, or set BEANSTALKD_HISTORY"
            )
        return self.store

    @contextlib.contextmanager
    def reading(self, check_end: bool = True) -> Iterator[StoreReader]:
        """Open the store for reading; `check_end` reports damage at its end.

        Raises ToolUsageError, StoreError.
        """
        from beanstalkd_py.history.reader import StoreReader

        folder = self.folder
        with translate_errors(folder), StoreReader.open(folder, self.sizes()) as store:
            if check_end:
                self._report_end(store)
            yield store

    def _report_end(self, store: StoreReader) -> None:
        # The last record of a store that is open may be incomplete.
        from beanstalkd_py.history.files import store_lock
        from beanstalkd_py.history.verify import Fault

        if store.fault and store_lock.was_stopped_cleanly(store.folder):
            self.report_fault(Fault.at(store.log.segments, store.log.end, store.fault))

    def sizes(self) -> Sizes | None:
        """Return the sizes given; None to detect them. Raises StoreUsageError, ToolUsageError."""
        if self.index_slots is None and self.index_entries is None:
            return None
        if self.index_slots is None or self.index_entries is None:
            raise errors.ToolUsageError("--index-slots and --index-entries require each other")
        from beanstalkd_py.history.files.size_detection import infer_sizes
        from beanstalkd_py.history.options import Sizes

        requested = Sizes(index_slots=self.index_slots, index_entries=self.index_entries)
        actual = infer_sizes(self.folder, requested)
        slots, entries = actual.index_slots, actual.index_entries
        if (slots, entries) != (self.index_slots, self.index_entries):
            raise errors.ToolUsageError(
                f"index files of {self.folder} have {slots} slots and {entries} entries; omit"
                " --index-slots and --index-entries"
            )
        return actual

    def report_fault(self, fault: Fault) -> None:
        self._report(str(fault))

    def _report(self, text: str) -> None:
        self.is_damaged = True
        if self._deferred is None:
            notice(text)
        else:
            self._deferred.append(text)

    @contextlib.contextmanager
    def deferring_reports(self) -> Iterator[None]:
        """Print reports at the end of the block, because a pager has the terminal."""
        texts: list[str] = []
        self._deferred = texts
        try:
            yield
        finally:
            self._deferred = None
            for text in texts:
                notice(text)

    def report_index(self, store: StoreReader) -> None:
        """Report unreadable index files, instead of which the log is searched."""
        for path, fault in store.index.unreadable.items():
            self._report(f"{path}: {fault}; reading the log instead")

    def report_queues(self, store: StoreReader) -> None:
        """Report unreadable queues, whose topics are missing from the output."""
        from beanstalkd_py.history.files.compatibility import unreadable

        for text in unreadable(store.folder):
            self._report(text)

    @property
    def status(self) -> int:
        return DAMAGED if self.is_damaged else 0


class StoredTube(click.ParamType):  # type: ignore[type-arg]
    """A tube of the store, completed with the store's tubes; `topic_of` checks that it exists."""

    name = "tube"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        from click.shell_completion import CompletionItem

        from beanstalkd_py.history.files.layout import queue_folders
        from beanstalkd_py.history.topics import unescape

        store = None if ctx.parent is None else ctx.parent.params.get("store")
        topics = {topic for topic, _ in queue_folders(Path(store))} if store else set()
        names = sorted(unescape(topic) or topic for topic in topics)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@contextlib.contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Convert StoreUsageError to ToolUsageError (status 2), and OSError to StoreError."""
    try:
        yield
    except errors.StoreUsageError as error:
        hint = " (--index-slots, --index-entries)" if "give the sizes" in str(error) else ""
        raise errors.ToolUsageError(f"{error}{hint}") from error
    except OSError as error:
        path = error.filename or folder
        raise errors.StoreError(f"cannot read history store: {path}: {error.strerror}") from error


def topic_of(store: StoreReader, name: str) -> str:
    """Return the topic of a tube, or the RocketMQ topic with this name.

    Raises ToolUsageError if there is neither, or if the format of its queues is not supported.
    """
    from beanstalkd_py.history.files.compatibility import batch_topics, unreadable
    from beanstalkd_py.history.topics import escape

    topics, candidates = store.topics(), (escape(name) if name else "", name)
    if topic := next((each for each in candidates if each in topics), None):
        return topic
    if not topics or not set(candidates).isdisjoint(batch_topics(store.folder)):
        for text in unreadable(store.folder):
            raise errors.ToolUsageError(
                f"cannot list {name!r}: {text}; use 'export' without TUBE, which reads the log"
            )
    raise errors.ToolUsageError(f"no such tube in {store.folder}: {name!r}; 'topics' lists all")
