"""Parses the common command lines of `serve` without click, whose import takes half of a start.

`fast_options` accepts a subset: the options below, each at most once, with values that need no
error message. It returns None for everything else, and the caller uses click. For each command
line that it accepts it returns exactly what click does; tests/cli/test_fast_parse.py compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beanstalkd_py.server.options import (
    AUTO_WORKERS,
    DEFAULT_LISTEN,
    DEFAULT_PORT,
    MAX_JOB_SIZE_LIMIT,
    MAX_WORKERS,
    SYNC_NEVER,
    ServeOptions,
)

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
_TEXTS = ("-b", "-l", "-u", "--control")
_HIGHEST = {
    "-f": 10**9,
    "-p": 65535,
    "-s": 10**15,
    "-z": MAX_JOB_SIZE_LIMIT,
    "--workers": MAX_WORKERS,
}
_LOWEST = {"-s": 1, "--workers": 1}
_FLAGS = ("-F", "-V")
_AUTO = "auto"
_NS_PER_MS = 1_000_000


def fast_options(words: Iterable[str], environ: Mapping[str, str]) -> ServeOptions | None:
    """Returns the options that the words after `serve` give, or None if click has to parse them."""
    if any(OWN_VARIABLES in name for name in environ):
        return None
    given = _values(iter(words))
    if given is None or {"-f", "-F"} <= given.keys():
        return None
    numbers: dict[str, int] = {}
    for name in _HIGHEST.keys() & given.keys():
        number = _number(name, given[name])
        if number is None:
            return None
        numbers[name] = number
    defaults = ServeOptions()
    return ServeOptions(
        listen=given.get("-l", DEFAULT_LISTEN),
        port=numbers.get("-p", DEFAULT_PORT),
        address_given="-l" in given or "-p" in given,
        binlog_dir=given.get("-b"),
        file_size=numbers.get("-s", defaults.file_size),
        sync_interval_ns=SYNC_NEVER if "-F" in given else numbers.get("-f", 0) * _NS_PER_MS,
        max_job_size=numbers.get("-z", defaults.max_job_size),
        user=given.get("-u"),
        verbosity=int("-V" in given),
        workers=numbers.get("--workers", AUTO_WORKERS),
        control=given.get("--control"),
    )


def _values(words: Iterable[str]) -> dict[str, str] | None:
    """Returns the value of each option by its short name, "" for a flag."""
    words = iter(words)
    given: dict[str, str] = {}
    for word in words:
        name, value = _split(word)
        name = _LONG_NAMES.get(name, name)
        if name in given:
            return None
        if name in _FLAGS:
            if value is not None:
                return None
            given[name] = ""
        elif name in _TEXTS or name in _HIGHEST:
            if value is None:
                value = next(words, "")
            if not value or value.startswith("-"):
                return None
            given[name] = value
        else:
            return None
    return given


def _split(word: str) -> tuple[str, str | None]:
    """Splits `-p11300` and `--port=11300`; the value of other words is None."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:] or None


def _number(name: str, text: str) -> int | None:
    if name == "--workers" and text == _AUTO:
        return AUTO_WORKERS
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_HIGHEST[name])):
        return None
    number = int(text)
    return number if _LOWEST.get(name, 0) <= number <= _HIGHEST[name] else None
