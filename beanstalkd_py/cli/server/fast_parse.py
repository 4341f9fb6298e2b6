"""Parses the common command lines of `serve` without click, whose import takes half of a start.

`fast_options` accepts a subset: the options below, each at most once, with values that need no
error message. It returns None for everything else, and the caller uses click. For each command line
that it accepts it returns the same options as click; tests/cli/server/test_fast_parse.py compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beanstalkd_py.server import options
from beanstalkd_py.server.options import ServeOptions

OWN_VARIABLES = "BEANSTALKD_PY"
"""Part of the name of each environment variable that changes options or asks for a completion."""

_LONG_NAMES = {
    "--binlog-dir": "-b",
    "--fsync-ms": "-f",
    "--no-fsync": "-F",
    "--listen": "-l",
    "--port": "-p",
    "--user": "-u",
    "--max-job-size": "-z",
    "--file-size": "-s",
    "--verbose": "-V",
}
_TEXTS = {"-b": "binlog_dir", "-l": "listen", "-u": "user", "--control": "control"}
_NUMBERS = {
    "-f": ("sync_interval_ns", 0, 10**9),
    "-p": ("port", 0, 65535),
    "-s": ("file_size", 1, 10**15),
    "-z": ("max_job_size", 0, options.MAX_JOB_SIZE_LIMIT),
    "--workers": ("workers", 1, options.MAX_WORKERS),
}
"""Field of ServeOptions, minimum and maximum."""
_FLAGS = {"-F": ("sync_interval_ns", options.SYNC_NEVER), "-V": ("verbosity", 1)}
_AUTO = "auto"
_NS_PER_MS = 1_000_000


def fast_options(words: Iterable[str], environ: Mapping[str, str]) -> ServeOptions | None:
    """Return the options that the words after `serve` give, or None if click has to parse them."""
    if any(OWN_VARIABLES in name for name in environ):
        return None
    settings: dict[str, object] = {}
    words = iter(words)
    for word in words:
        name, text = _split(word)
        name = _LONG_NAMES.get(name, name)
        value: str | int | None = None
        if name in _FLAGS and text is None:
            field, value = _FLAGS[name]
        elif name in _TEXTS or name in _NUMBERS:
            text = next(words, "") if text is None else text
            if not text or text.startswith("-"):
                return None
            field, value = (_TEXTS[name], text) if name in _TEXTS else _number(name, text)
        if value is None or field in settings:
            return None
        settings[field] = value
    has_address = not settings.keys().isdisjoint(("listen", "port"))
    return ServeOptions(**settings, address_given=has_address)  # type: ignore[arg-type]


def _split(word: str) -> tuple[str, str | None]:
    """Split `-p11300` and `--port=11300`; the value of other words is None."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:] or None


def _number(name: str, text: str) -> tuple[str, int | None]:
    """Return the field and its value; None for a value that click has to check."""
    field, lowest, highest = _NUMBERS[name]
    if name == "--workers" and text == _AUTO:
        return field, options.AUTO_WORKERS
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(highest)):
        return field, None
    number = int(text)
    if not lowest <= number <= highest:
        return field, None
    return field, number * _NS_PER_MS if name == "-f" else number
