"""The manifest of shipped binlog files: `_manifest.jsonl` in the folder of their host.

A line describes a file, {"shard": "", "file": 3, ...}, or files that were removed before they were
shipped, {"shard": "", "missing": [4, 5]}. Spark ignores names that begin with an underscore.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from beanstalkd_py.binlog.layout import HIGHEST_NUMBER
from beanstalkd_py.errors import PipelineError
from beanstalkd_py.pipeline.sources.remote import RemotePath

NAME = "_manifest.jsonl"


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file; `crc32` is that of its bytes, `head` that of its first ones, in hexadecimal digits.

    `identity` is that of its binlog folder, "" without a history. `shipped_at` is a time in UTC.
    """

    shard: str
    file: int
    size: int
    crc32: str
    head: str
    identity: str
    shipped_at: str


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Files from the first to the last number, inclusive."""

    shard: str
    missing: tuple[int, int]


@dataclass(slots=True)
class Manifest:
    """The manifest in one folder. Methods raise OSError."""

    folder: RemotePath
    lines: list[ShippedFile | MissingFiles] = field(default_factory=list)

    @classmethod
    def load(cls, folder: RemotePath) -> Manifest:
        """Return the manifest, an empty one if there is none. Raises PipelineError."""
        try:
            text = folder.below(NAME).read()
        except FileNotFoundError:
            return cls(folder)
        try:
            return cls(folder, [_line(each) for each in text.decode().splitlines()])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise PipelineError(
                f"{folder.below(NAME).url} is not a manifest of this version: {error!r}; move it"
                " and the files beside it to another folder"
            ) from error

    def save(self) -> None:
        text = "".join(json.dumps(asdict(each)) + "\n" for each in self.lines)
        self.folder.below(NAME).write(text.encode())

    def following(self, shard: str) -> int | None:
        """Return the number after the last one that is named, None if there is none."""
        numbers = (
            each.file if isinstance(each, ShippedFile) else each.missing[1]
            for each in self.lines
            if each.shard == shard
        )
        return max((number + 1 for number in numbers), default=None)

    def files(self, shard: str) -> Iterator[ShippedFile]:
        return (
            each for each in self.lines if isinstance(each, ShippedFile) and each.shard == shard
        )

    def last(self, shard: str) -> ShippedFile | None:
        return max(self.files(shard), key=lambda each: each.file, default=None)


def _line(text: str) -> ShippedFile | MissingFiles:
    values = json.loads(text)
    if "missing" in values:
        first, last = numbers = values["missing"]
        line: ShippedFile | MissingFiles = MissingFiles(values["shard"], (first, last))
        _check(numbers == sorted(numbers), numbers)
    else:
        line = ShippedFile(**values)
        numbers = [line.file]
        texts = (line.crc32, line.head, line.identity, line.shipped_at)
        _check(all(isinstance(each, str) for each in texts), texts)
    _check(isinstance(line.shard, str), line.shard)
    _check(all(type(each) is int and 0 < each <= HIGHEST_NUMBER for each in numbers), numbers)
    return line


def _check(is_valid: bool, value: object) -> None:
    if not is_valid:
        raise ValueError(f"{value!r} is invalid")
