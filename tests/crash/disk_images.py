"""Build the possible disk contents after a power cut from a recording of file operations.

disk_recorder.c makes the recording. Every image has all synced changes. Of the unsynced changes an
image has none or a random subset: each sector of a write, each change of size and each change of a
name is chosen independently, because a file system may write them in any order.
"""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

SECTOR = 512
_HEAD = struct.Struct("=cQQqIII")


@dataclass(frozen=True)
class Record:
    """One record of the log. `kind` is one of the letters of disk_recorder.c."""

    kind: str
    thread: int
    inode: int
    offset: int
    path: Path
    other: str
    data: bytes


def whole_records(log: bytes, at: int) -> int:
    """Return the end of the last record that is complete before the offset `at`."""
    end = 0
    while end + _HEAD.size <= at:
        *_, path, other, data = _HEAD.unpack_from(log, end)
        after = end + _HEAD.size + path + other + data
        if after > at:
            break
        end = after
    return end


def records(log: bytes) -> Iterator[Record]:
    at = 0
    while at + _HEAD.size <= len(log):
        kind, thread, inode, offset, path, other, data = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        end = at + path + other + data
        first, second = at + path, at + path + other
        yield Record(
            kind.decode(),
            thread,
            inode,
            offset,
            Path(log[at:first].decode()),
            log[first:second].decode(),
            log[second:end],
        )
        at = end


@dataclass(eq=False)
class Change:
    """Bytes written at an offset or, if `data` is None, a new size of the file."""

    offset: int
    data: bytes | None


@dataclass
class Data:
    """The bytes of a file. Those behind `stored` are zeros, because files of a store are large."""

    stored: bytearray = field(default_factory=bytearray)
    size: int = 0

    def copy(self) -> Data:
        return Data(self.stored.copy(), self.size)

    def whole(self) -> bytes:
        return bytes(self.stored).ljust(self.size, b"\0")

    def apply(self, change: Change) -> None:
        offset, new = change.offset, change.data
        if new is None:
            del self.stored[offset:]
            self.size = offset
            return
        self.stored.extend(bytes(max(0, offset - len(self.stored))))
        self.stored[offset : offset + len(new)] = new
        self.size = max(self.size, offset + len(new))


@dataclass(eq=False)
class File:
    """A regular file: its durable bytes and the unsynced changes, oldest first."""

    durable: Data = field(default_factory=Data)
    pending: list[Change] = field(default_factory=list)
    lost: list[Change] = field(default_factory=list)
    """Changes that a failed sync has marked clean, as far as no later one is durable there."""

    def synced(self, covered: list[Change]) -> None:
        """Make the changes durable that were pending when a successful sync began."""
        for change in covered:
            if change in self.pending:
                self.pending.remove(change)
                self.durable.apply(change)
                self.lost = [part for lost in self.lost for part in _remains(lost, change)]

    def failed(self, covered: list[Change]) -> None:
        """Lose the changes that were pending when a failed sync began."""
        for change in covered:
            self.pending.remove(change)
            self.lost.append(change)

    @property
    def size(self) -> int:
        """The size that programs see before a power cut."""
        size = self.durable.size
        for change in [*self.lost, *self.pending]:
            is_size = change.data is None
            size = change.offset if is_size else max(size, change.offset + len(change.data or b""))
        return size

    def written(self) -> Data:
        """Return the bytes that programs see."""
        data = self.durable.copy()
        for change in [*self.lost, *self.pending]:
            data.apply(change)
        return data

    def image(self, dice: random.Random | None) -> Data:
        """Return the bytes after a power cut; without dice, only the durable ones."""
        data = self.durable.copy()
        if dice is None:
            return data
        share = dice.choice([0.1, 0.5, 0.9])
        for change in [*self.lost, *self.pending]:
            for piece in _pieces(change, dice):
                if dice.random() < share:
                    data.apply(piece)
        return data


def _pieces(change: Change, dice: random.Random) -> Iterator[Change]:
    """Split a write into sectors, a few of which are torn."""
    offset, data = change.offset, change.data
    if data is None:
        yield change
        return
    while data:
        length = SECTOR - offset % SECTOR
        piece = data[:length]
        if dice.random() < 0.05:
            piece = piece[: dice.randrange(len(piece) + 1)]
        yield Change(offset, piece)
        data = data[length:]
        offset += length


def _remains(lost: Change, durable: Change) -> list[Change]:
    """Return the parts of a lost change that a later durable one does not replace.

    The size is written with any later change, because it is not that of a page.
    """
    if lost.data is None:
        return []
    start, end = durable.offset, lost.offset + len(lost.data)
    if durable.data is not None:
        end = start + len(durable.data)
    before = lost.data[: max(0, start - lost.offset)]
    after = lost.data[max(0, end - lost.offset) :]
    parts = [Change(lost.offset, before), Change(max(lost.offset, end), after)]
    return [part for part in parts if part.data]


@dataclass(eq=False)
class Link:
    target: str


@dataclass(eq=False)
class Folder:
    """The entries of a folder: current and durable."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = File | Link | Folder


@dataclass(eq=False)
class NameChange:
    """Names that change atomically: one, or the two of a rename. None removes a name."""

    parts: list[tuple[Folder, str, Node | None]]

    def touches(self, folder: Folder) -> bool:
        return any(each is folder for each, _, _ in self.parts)


class Disk:
    """A simulated disk below one folder; the recording starts with empty folders only."""

    def __init__(self, root: Path, folders: Iterable[str]) -> None:
        self._root = root
        made: dict[str, Node] = {name: Folder() for name in folders}
        self._top = Folder(dict(made), dict(made))
        self._files: dict[int, File] = {}
        self._pending: list[NameChange] = []
        self._syncs: dict[tuple[int, str], list[Change]] = {}
        self._folder_syncs: dict[tuple[int, str], list[NameChange]] = {}

    def play(self, log: bytes) -> None:
        """Apply the next part of the recording, which ends at the end of a record."""
        for each in records(log):
            self.take(each)

    def take(self, each: Record) -> None:
        """Apply one record."""
        match each.kind:
            case "C":
                self._files[each.inode] = made = File()
                self._change([(each.path, made)])
            case "W":
                self._files[each.inode].pending.append(Change(each.offset, each.data))
            case "T":
                self._files[each.inode].pending.append(Change(each.offset, None))
            case "A":
                file = self._files[each.inode]
                if each.offset > file.size:
                    file.pending.append(Change(each.offset, None))
            case "B" | "S" | "X":
                self._sync(each)
            case "R":
                self._change([(each.path, None), (Path(each.other), self._node(each.path))])
            case "L":
                self._change([(Path(each.other), self._node(each.path))])
            case "U":
                self._change([(each.path, None)])
            case "M":
                self._change([(each.path, Folder())])
            case "Y":
                self._change([(each.path, Link(each.other))])
            case _:
                raise AssertionError(f"unknown record {each.kind!r}")

    def _sync(self, each: Record) -> None:
        key = (each.thread, str(each.path))
        if each.inode == 0:
            self._sync_folder(each, key)
            return
        file = self._files[each.inode]
        if each.kind == "B":
            self._syncs[key] = list(file.pending)
        elif each.kind == "S":
            file.synced(self._syncs.pop(key))
        else:
            file.failed(self._syncs.pop(key))

    def _sync_folder(self, each: Record, key: tuple[int, str]) -> None:
        folder = self._node(each.path)
        assert isinstance(folder, Folder)
        if each.kind == "B":
            self._folder_syncs[key] = [one for one in self._pending if one.touches(folder)]
            return
        covered = self._folder_syncs.pop(key)
        for change in covered if each.kind == "S" else []:
            if change in self._pending:
                self._pending.remove(change)
                if len(change.parts) == 1:
                    self._forget_changes_in(change)
                for where, name, node in change.parts:
                    _rename(where.durable, name, node)

    def _forget_changes_in(self, removal: NameChange) -> None:
        """Forget changes in a folder whose removal is durable: they can have no effect."""
        where, name, _ = removal.parts[0]
        removed = where.durable.get(name)
        if isinstance(removed, Folder):
            self._pending = [
                one for one in self._pending if not all(each is removed for each, _, _ in one.parts)
            ]

    def _node(self, path: Path) -> Node:
        node: Node = self._top
        for part in path.relative_to(self._root).parts:
            assert isinstance(node, Folder)
            node = node.names[part]
        return node

    def _change(self, parts: list[tuple[Path, Node | None]]) -> None:
        change = NameChange([])
        for path, node in parts:
            folder = self._node(path.parent)
            assert isinstance(folder, Folder)
            _rename(folder.names, path.name, node)
            change.parts.append((folder, path.name, node))
        self._pending.append(change)

    def image(self, dice: random.Random | None) -> Image:
        """Return the disk after a power cut; without dice, only durable changes."""
        names = self._some_names(dice) if dice else []
        return self._with_names(names, lambda file: file.image(dice))

    def images_one_name_apart(self) -> Iterator[Image]:
        """Yield the images with only one unsynced change of a name, and those without only one.

        Files have only what is durable, or everything.
        """
        for change in self._pending:
            others = [each for each in self._pending if each is not change]
            for names in ([change], others):
                yield self._with_names(names, lambda file: file.durable.copy())
                yield self._with_names(names, File.written)

    def _some_names(self, dice: random.Random) -> Iterator[NameChange]:
        share = dice.choice([0.2, 0.5, 1.0])
        in_order = dice.random() < 0.5
        for change in self._pending:
            if dice.random() < share:
                yield change
            elif in_order:
                break

    def _with_names(self, written: Iterable[NameChange], data_of: Callable[[File], Data]) -> Image:
        trees: dict[int, dict[str, Node]] = {}

        def names_of(folder: Folder) -> dict[str, Node]:
            return trees.setdefault(id(folder), dict(folder.durable))

        for change in written:
            for folder, name, node in change.parts:
                _rename(names_of(folder), name, node)
        return Image(list(_nodes(self._top, "", names_of, data_of)))


def _nodes(
    folder: Folder,
    at: str,
    names_of: Callable[[Folder], dict[str, Node]],
    data_of: Callable[[File], Data],
) -> Iterator[tuple[str, Data | Link | None]]:
    for name, node in names_of(folder).items():
        path = f"{at}{name}"
        if isinstance(node, Folder):
            yield path, None
            yield from _nodes(node, f"{path}/", names_of, data_of)
        else:
            yield path, node if isinstance(node, Link) else data_of(node)


@dataclass
class Image:
    """The disk after a power cut: paths of files, links and folders (None), parents first."""

    nodes: list[tuple[str, Data | Link | None]]

    @property
    def key(self) -> bytes:
        """The same bytes for the same files only."""
        made = hashlib.blake2b()
        for path, node in sorted(self.nodes, key=itemgetter(0)):
            made.update(repr((path, getattr(node, "target", None))).encode())
            if isinstance(node, Data):
                stored = node.stored.rstrip(b"\0")
                made.update(b"%d %d " % (node.size, len(stored)) + stored)
        return made.digest()

    def write(self, target: Path) -> None:
        """Write it to a new folder."""
        target.mkdir()
        for name, node in self.nodes:
            path = target / name
            if node is None:
                path.mkdir()
            elif isinstance(node, Link):
                path.symlink_to(node.target)
            else:
                path.write_bytes(node.stored.rstrip(b"\0"))  # the rest is a hole
                os.truncate(path, node.size)


def _rename(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
