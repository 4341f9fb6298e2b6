"""The documents of the tree, and their contents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_MADE = {"__pycache__", "build", "dist"}

_FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block; the language is empty if none is given."""

    language: str
    text: str


class Document:
    """A Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        return [Block(found["language"], found["text"]) for found in _FENCE.finditer(self.text)]

    @cached_property
    def prose(self) -> str:
        """Return the text without fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def code(self) -> set[str]:
        """Return the inline code of the prose."""
        return set(_CODE.findall(self.prose))

    @cached_property
    def links(self) -> set[str]:
        return set(_LINK.findall(_CODE.sub("", self.prose)))

    @cached_property
    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub and MyST derive them."""
        return {_slug(title) for title in _HEADING.findall(self.prose)}

    def table_cells(self, column: int) -> Iterator[str]:
        """Yield the cells of a column (0 is the first) of all tables, without headings."""
        for line in self.prose.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| ") and len(cells) > column:
                yield cells[column].strip("| ")


def _slug(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.strip().replace(" ", "-")


@cache
def tree_files() -> frozenset[str]:
    """Return the relative paths of all files of the tree, except generated ones."""
    return frozenset(_files_below(ROOT))


def _files_below(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.is_symlink() or path.name in _MADE or (path.name[0] == "." and path.name != ".ci"):
            continue
        if path.is_dir():
            if not path.name.endswith(".egg-info"):
                yield from _files_below(path)
        elif path.suffix not in (".pyc", ".so", ".o"):
            yield str(path.relative_to(ROOT))


@cache
def documents() -> list[Document]:
    return [document(path) for path in sorted(tree_files()) if path.endswith(".md")]


@cache
def document(name: str) -> Document:
    return Document(ROOT / name)
