"""Run command lines that exit by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from beanstalkd_py.cli.server.config_layers import ConfigError, from_file
from beanstalkd_py.cli.server.serve import serve

ERROR = 1
USAGE = 5
FOLDER = 10
BIND = 111


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "beanstalkd_py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def refusal(status: int, *args: str | Path) -> str:
    """Run a start that must fail with this status; return its line on stderr."""
    done = run(*args)
    assert done.returncode == status, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("beanstalkd-py: ")
    return lines[0]


def assert_invalid_file(path: Path, text: str, words: Iterable[str]) -> None:
    """Write a configuration file, whose error must be one line with its path and these words."""
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        from_file(serve, serve.make_context("serve", []), path)
    message = caught.value.format_message()
    assert "\n" not in message
    for word in [str(path), *words]:
        assert word in message
