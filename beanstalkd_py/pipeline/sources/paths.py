"""Paths and globs in Hadoop's syntax, and the host of each file. Reads no files."""

from __future__ import annotations

import glob
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from beanstalkd_py.errors import PipelineUsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BEFORE_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)(?://[^/]*)?")
_WILD = re.compile(r"[*?\[{]")
_OWN_NAME = re.compile(r"shard-\d{3}|binlog\.\d+(?:\.done)?")


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the absolute paths of `load(path)` or `load([path, ...])`.

    Raises PipelineUsageError without a path.
    """
    lower = {name.lower(): value for name, value in options.items()}
    paths = [lower["path"]] if lower.get("path") else []
    if lower.get("paths"):
        paths += json.loads(lower["paths"])
    if not paths:
        raise PipelineUsageError(
            "no path; give a folder, a file or a glob; CREATE TABLE keeps it only without a list of"
            " columns, which the option columns replaces"
        )
    return [absolute(path) for path in paths]


def local(path: str) -> str | None:
    """Return the path on this machine, None if it is on another file system."""
    if not _SCHEME.match(path):
        return path
    parts = urlsplit(path)
    if parts.scheme.lower() != "file":
        return None
    if _WILD.search(path):  # ? is a wildcard, not a query
        return "/" + path.partition(":")[2].lstrip("/")
    return unquote(parts.path)


def are_local(paths: Iterable[str]) -> bool:
    """Whether tasks can open the paths. Raises PipelineUsageError if only some are local."""
    kinds = {local(path) is not None for path in paths}
    if len(kinds) > 1:
        raise PipelineUsageError("some paths are local and some are not; read them one by one")
    return kinds == {True}


def parts_of(path: str) -> list[str]:
    """Return the components of a path without scheme and authority."""
    plain = _BEFORE_PATH.sub("", path, count=1) if _SCHEME.match(path) else path
    return re.split("/+", plain.rstrip("/"))


def is_bare(path: str) -> bool:
    """Whether a path has no scheme."""
    return _SCHEME.match(path) is None


def is_glob(path: str) -> bool:
    return _WILD.search(path) is not None


def is_host_name(name: str) -> bool:
    """Whether readers can find the files of a host in a folder of this name."""
    is_plain = name.isprintable() and "/" not in name and not is_glob(name)
    return is_plain and name[:1] not in ("", "_", ".") and not _OWN_NAME.fullmatch(name)


def absolute(path: str) -> str:
    """Make a path without a scheme absolute: executors have working folders of their own."""
    return str(Path(path).absolute()) if is_bare(path) else path


def true_path(pattern: str) -> str:
    """Normalize a path; links of a local one are resolved up to its first wildcard."""
    if not is_bare(pattern):
        return pattern.rstrip("/")
    parts = Path(os.path.abspath(pattern)).parts  # noqa: PTH100 - resolve() resolves all of it
    plain = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return str(Path(*parts[:plain]).resolve().joinpath(*parts[plain:]))


def expand_local(pattern: str, function: str) -> list[str]:
    """Expand a pattern of a source. Raises PipelineUsageError.

    The error about a path on another file system names the function that reads it.
    """
    plain = local(pattern)
    if plain is None:
        raise PipelineUsageError(
            f"path {pattern} is on another file system, which this source does not read; use"
            f" {function}(spark, path)"
        )
    return expand(plain)


def expand(pattern: str) -> list[str]:
    """Return the sorted matches of a local glob. Raises PipelineUsageError without any."""
    paths: set[str] = set()
    for plain in _without_braces(pattern):
        if _WILD.search(plain):
            negated = plain.replace("[^", "[!")  # Hadoop accepts both
            paths.update(glob.glob(negated))  # noqa: PTH207 - Path.glob takes no absolute pattern
        elif Path(plain).exists():
            paths.add(plain)
    if not paths:
        raise PipelineUsageError(f"path {pattern} does not exist")
    return sorted(paths)


def before_wildcard(pattern: str) -> str:
    """Return the folders of a path before its first wildcard, or all of it."""
    start = _authority(pattern)
    parts = pattern.removeprefix(start).split("/")
    plain = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return start + "/".join(parts[:plain])


def prefix_expression(pattern: str) -> str:
    """Translate a glob to a regular expression for what it matches and what is below that."""
    start = _authority(pattern)
    parts = filter(None, pattern.removeprefix(start).split("/"))
    return re.escape(start) + "/".join(map(_component, parts)) + "(?:/|$)"


def _authority(path: str) -> str:
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*/|/", path)
    return match[0] if match is not None else ""


def _without_braces(pattern: str) -> list[str]:
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [
        each for middle in match[1].split(",") for each in _without_braces(before + middle + after)
    ]


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a glob for one component."""
    return re.fullmatch(_component(pattern), name) is not None


def _component(glob_part: str) -> str:
    """Translate one component of a glob to a regular expression."""
    expression, depth, at = "", 0, 0
    while at < len(glob_part):
        char = glob_part[at]
        # A leading ] is literal.
        first = at + (2 if glob_part[at + 1 : at + 2] in ("!", "^") else 1)
        end = glob_part.find("]", first + 1) if char == "[" else -1
        if end > 0:
            inside = glob_part[at + 1 : end].replace("\\", "\\\\")
            expression += f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]"
            at = end
        elif char in "*?":
            expression += "[^/]*" if char == "*" else "[^/]"
        elif char in "{}" or (char == "," and depth):
            expression += {"{": "(?:", "}": ")", ",": "|"}[char]
            depth += {"{": 1, "}": -1, ",": 0}[char]
        else:
            expression += re.escape(char)
        at += 1
    return expression


@dataclass(frozen=True, slots=True)
class Hosts:
    """Derives the host of a file.

    In order of precedence: the first group of `pattern` in the path; `name`; the component of the
    path that matches the first wildcard component of a glob; `default`.
    """

    name: str | None
    pattern: str | None
    globs: tuple[str, ...]
    default: str

    @classmethod
    def of(cls, paths: list[str], name: str | None, pattern: str | None) -> Hosts:
        if pattern is not None:
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise PipelineUsageError(f"hostPattern {pattern!r}: {error}") from error
            if groups < 1:
                raise PipelineUsageError(f"hostPattern {pattern!r} has no group for the host")
        default = socket.gethostname() if all(local(path) is not None for path in paths) else ""
        expressions = [each for path in paths if (each := _host_expression(path))]
        return cls(name, pattern, tuple(expressions), default)

    def host(self, path: str) -> str:
        if self.pattern is not None:
            match = re.search(self.pattern, path)
            return (match[1] or "") if match else self.default
        if self.name is not None:
            return self.name
        plain = "/".join(parts_of(path))
        for expression in self.globs:
            match = re.match(expression, plain)
            if match and not _OWN_NAME.fullmatch(match[1]):
                return match[1]
        return self.default


def _host_expression(path: str) -> str | None:
    """Translate a glob; the group matches its first component with a wildcard."""
    parts = parts_of(path)
    first = next((at for at, part in enumerate(parts) if _WILD.search(part)), None)
    if first is None:
        return None
    before = "".join(_component(part) + "/" for part in parts[:first])
    after = "".join("/" + _component(part) for part in parts[first + 1 :])
    return rf"{before}({_component(parts[first])}){after}(?:/|$)"
