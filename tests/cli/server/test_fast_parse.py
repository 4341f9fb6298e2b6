"""`fast_options` returns what click does, or None."""

from __future__ import annotations

import os

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beanstalkd_py.cli.server.config_layers import PREFIX
from beanstalkd_py.cli.server.fast_parse import OWN_VARIABLES, fast_options
from beanstalkd_py.cli.server.serve import serve, serve_options
from beanstalkd_py.server.options import MAX_JOB_SIZE_LIMIT, MAX_WORKERS, ServeOptions

ACCEPTED = (
    [],
    ["-l", "127.0.0.1", "-p", "11300"],
    ["-l127.0.0.1", "-p0", "--workers=1", "-V"],
    ["-b", "folder", "-f", "50", "-z", "1048576", "-s", "1", "--control", "none"],
    ["--binlog-dir=a=b", "--no-fsync", "--user", "nobody", "--listen", "unix:/run/socket"],
    ["--port=00011", "--max-job-size", str(MAX_JOB_SIZE_LIMIT), "--file-size=10485760"],
    ["--fsync-ms", "1000000000", "--workers", str(MAX_WORKERS), "--verbose"],
    ["--workers", "auto"],
)
LEFT_TO_CLICK = (
    ["-p", "65536"],
    ["-p", "-1"],
    ["-p", "\u0663"],
    ["-p"],
    ["-b", ""],
    ["-s", "0"],
    ["-z", str(MAX_JOB_SIZE_LIMIT + 1)],
    ["--workers", "0"],
    ["-f", "5", "-F"],
    ["-p", "1", "--port", "2"],
    ["-VV"],
    ["-V", "-V"],
    ["-c"],
    ["-h"],
    ["--version"],
    ["--metrics", "127.0.0.1:0"],
    ["--config", "file"],
    ["--no-fsync=1"],
    ["--por", "1"],
    ["--", "-p"],
    ["word"],
)

ALL_NAMES = sorted({name for one in serve.params for name in (*one.opts, *one.secondary_opts)})
FAST_NAMES = [
    "-b",
    "-f",
    "-F",
    "-l",
    "-p",
    "-s",
    "-u",
    "-V",
    "-z",
    "--control",
    "--port",
    "--workers",
]
NAMES = st.sampled_from(FAST_NAMES) | st.sampled_from(ALL_NAMES)
_NUMBERS = ["0", "1", "007", "50", "65536", "255", "256", str(MAX_JOB_SIZE_LIMIT), "9" * 19]
_TEXTS = ["", "auto", "none", "-V", "=", "=1", "a=b", "127.0.0.1", "unix:/x", "-"]
VALUES = st.sampled_from([*_NUMBERS, *_TEXTS, "1K", "-1", "\u0663"])
WORDS = st.one_of(
    st.tuples(NAMES, VALUES),
    st.tuples(NAMES),
    st.builds(lambda name, value: (f"{name}={value}",), NAMES, VALUES),
    st.builds(lambda name, value: (f"{name}{value}",), NAMES, VALUES),
    st.tuples(VALUES),
)
COMMAND_LINES = st.lists(WORDS, max_size=5).map(
    lambda found: [word for one in found for word in one]
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if OWN_VARIABLES in name:
            monkeypatch.delenv(name)


def by_click(words: list[str]) -> ServeOptions:
    return serve_options(serve.make_context("serve", list(words)))


@pytest.mark.parametrize("words", ACCEPTED, ids=" ".join)
def test_accepts_common_command_lines(words: list[str]) -> None:
    assert fast_options(words, {}) == by_click(words)


@pytest.mark.parametrize("words", LEFT_TO_CLICK, ids=" ".join)
def test_leaves_other_command_lines_to_click(words: list[str]) -> None:
    assert fast_options(words, {}) is None


@given(COMMAND_LINES)
@example(["-p", "1", "-F", "-l", "=1"])
def test_returns_what_click_does_or_none(words: list[str]) -> None:
    found = fast_options(words, {})
    if found is not None:
        try:
            expected = by_click(words)
        except (click.ClickException, click.exceptions.Exit) as error:
            pytest.fail(f"click rejects {words}: {error!r}")
        assert found == expected


@pytest.mark.parametrize("name", [f"{PREFIX}PORT", f"{PREFIX}CONFIG", "_BEANSTALKD_PY_COMPLETE"])
def test_leaves_variables_of_the_environment_to_click(name: str) -> None:
    assert fast_options(["-p", "1"], {"PATH": "/bin"}) is not None
    assert fast_options(["-p", "1"], {"PATH": "/bin", name: "1"}) is None
