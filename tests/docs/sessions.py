"""Shell sessions and Python examples in documents: running them, and comparing the output.

Blocks of the language `console` are shell sessions: a line that starts with "$ " is a command, and
the lines after it are its output. Python blocks run unchanged. TOML blocks are the file
beanstalkd-py.toml. All blocks run in order in one
folder.
Numbers may differ, and the port is another one. pip does nothing, because the package is installed,
unless a session starts in a new environment.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docs.documents import ROOT, document
from servers import free_port

PORT = "11300"
WAIT_S = 20.0
_END = "-- end of output --"
_STDERR = ".stderr"
# These need root, the network or a service manager; tests/cli and tests/systemd test them.
NOT_RUN = {"sh", "text"}
AIRFLOW = "from airflow"
CONFIGURATION = "beanstalkd-py.toml"


class Shell:
    """A shell in a folder, for the commands of one document."""

    def __init__(self, folder: Path, port: int, is_new: bool) -> None:
        self._port = port
        self._folder = folder
        self._python = _new_python(folder) if is_new else Path(sys.executable)
        pip = folder / ".bin" / "pip"
        pip.parent.mkdir()
        pip.write_text(_pip_of_tree(folder, self._python) if is_new else "#!/bin/sh\n")
        pip.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{pip.parent}:{self._python.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            # Without the cache pip would build PySpark again. Compiling modules takes long, too.
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
            "PIP_COMPILE": "0",
            "BEANSTALKD_ADDR": f"127.0.0.1:{port}",
            "BEANSTALKD_PY_PORT": str(port),
            "BEANSTALKD_PY_LISTEN": "127.0.0.1",
        }
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> str:
        """Return the output of the command: stdout, then stderr.

        Wait until a server that it starts or stops is up or gone.
        """
        if command.endswith("&"):
            self._send(f"{command}\n")
            self._wait_for_server()
            return ""
        output = self._send(f"{{ {command}\n}} 2> {_STDERR}\n") + "\n"
        output += (self._folder / _STDERR).read_text()
        if command.startswith("kill"):
            self._send(f"wait {command.split()[-1]}\n")
        return output

    def run_python(self, code: str) -> None:
        subprocess.run(
            [self._python, "-c", code.replace(PORT, str(self._port))],
            cwd=self._folder,
            env=self._environment,
            check=True,
        )

    def close(self) -> None:
        """Stop servers that a failed session has left."""
        self._send("kill $(jobs -p); wait\n")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _send(self, script: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{script}echo '{_END}'\n")
        stdin.flush()
        output = ""
        while not output.endswith(f"{_END}\n"):
            output += stdout.readline()
        return output.removesuffix(f"{_END}\n")

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _new_python(folder: Path) -> Path:
    environment = folder / ".venv"
    command = [sys.executable, "-m", "venv", "--without-pip", environment]
    subprocess.run(command, check=True)
    return environment / "bin" / "python"


def _pip_of_tree(folder: Path, python: Path) -> str:
    """Return a program that installs a copy of this tree as beanstalkd_py, built quickly."""
    copy = folder / ".tree"
    skipped = shutil.ignore_patterns(".git", ".venv*", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=skipped)
    return f"""#!/bin/sh
export BEANSTALKD_PY_LTO=0
echo "$*" | sed 's#beanstalkd_py#{copy}#' | xargs {sys.executable} -m pip --python {python} -qqq
"""


@contextmanager
def shell(folder: Path, is_new: bool) -> Iterator[Shell]:
    opened = Shell(folder, free_port(), is_new)
    try:
        yield opened
    finally:
        opened.close()


def steps(text: str) -> list[tuple[str, str]]:
    """Return the commands, each with its printed output."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert not parts[0], "a session must begin with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def normalised(output: str) -> list[str]:
    """Return the lines without progress, and differences in numbers and widths of columns."""
    lines = (" ".join(re.sub(r"\d+", "0", line).split()) for line in output.splitlines())
    return [line for line in lines if line and "of this stage" not in line]


def run_session(name: str, folder: Path, *, is_new: bool = False) -> None:
    """Run the blocks of a document, except those about Airflow, and compare the output.

    `is_new`: in a new environment, into which a session has to install the package.
    """
    blocks = document(name).blocks
    assert {block.language for block in blocks} <= {"console", "python", "toml", *NOT_RUN}
    with shell(folder, is_new) as opened:
        for block in blocks:
            if block.language == "python" and AIRFLOW not in block.text:
                opened.run_python(block.text)
            elif block.language == "toml":
                (folder / CONFIGURATION).write_text(block.text)
            elif block.language == "console":
                for command, expected in steps(block.text):
                    assert normalised(opened.run(command)) == normalised(expected), command
