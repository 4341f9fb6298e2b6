"""Run commands in this process, because starting Python takes long."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from beanstalkd_py.cli import main as cli

LOGGER = logging.getLogger("beanstalkd_py")


@dataclass(frozen=True)
class CommandResult:
    """Exit status, stdout, and messages on stderr of a command."""

    status: int
    out: bytes
    errors: list[str]

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


@dataclass(frozen=True)
class Operator:
    """Runs commands on one server."""

    address: str

    def try_(self, *words: str | bytes | int, stdin: bytes = b"") -> CommandResult:
        # Variables, because a wrapper without references closes its buffer.
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        errors = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with (
            mock.patch.dict(os.environ, {"BEANSTALKD_ADDR": self.address}),
            mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            mock.patch("sys.stdout", out),
            mock.patch("sys.stderr", errors),
            # Commands that log change the logger's propagation.
            mock.patch.object(LOGGER, "propagate", LOGGER.propagate),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main(
                [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in words]
            )
        status = ended.value.code
        assert isinstance(status, int)
        # An empty line ends the ^C of a terminal.
        result = [line for line in _bytes_of(errors).decode().splitlines() if line]
        assert all(line.startswith("beanstalkd-py: ") for line in result), result
        return CommandResult(status, _bytes_of(out), [line.partition(": ")[2] for line in result])

    def do(self, *words: str | bytes | int, stdin: bytes = b"") -> CommandResult:
        """Run a command that must succeed."""
        result = self.try_(*words, stdin=stdin)
        assert result.status == 0, result
        return result

    def fail(self, status: int, *words: str | bytes | int, stdin: bytes = b"") -> str:
        """Run a command that must exit with this status; return its last line on stderr."""
        result = self.try_(*words, stdin=stdin)
        assert result.status == status, result
        return result.errors[-1]

    def start(self, *words: str | int, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a command in a process of its own."""
        command = [sys.executable, "-m", "beanstalkd_py", *map(str, words)]
        environment = {**os.environ, "BEANSTALKD_ADDR": self.address, **settings.pop("env", {})}
        return subprocess.Popen(command, env=environment, **settings)


def _bytes_of(wrapper: io.TextIOWrapper) -> bytes:
    wrapper.seek(0)
    return wrapper.buffer.read()
