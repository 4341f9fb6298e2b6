"""The container commands of docs/install.md, run by Podman in a network of the test."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import eventually
from releases import ROOT, Release, run
from replication.servers.namespaces import network
from wire import Client

from beanstalkd_py import __version__

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]

PORT = 11300
START_S = STOP_S = 30.0
# By default Podman asks for limits above those of this process, which needs a capability.
CONTAINERS = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "{0}/images"
runroot = "{0}/run"
"""


@pytest.fixture
def _podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Podman with storage and a network of its own, in which port 11300 is free."""
    for name, text in ("CONF", CONTAINERS), ("STORAGE_CONF", STORAGE.format(tmp_path)):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"CONTAINERS_{name}", str(tmp_path / name))
    with network(0):
        yield
        run("podman", "rm", "--all", "--force", "--volumes", cwd=tmp_path)
        run("podman", "rmi", "--all", "--force", cwd=tmp_path)


def documented_commands() -> str:
    """Return the commands below the heading "Container"."""
    text = (ROOT / "docs/install.md").read_text()
    found = re.search(r"^## Container\n.*?^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1].replace("VERSION", __version__)


def connected() -> Client:
    """Connect to the published port, which Podman opens before the server does."""

    def answers() -> bool:
        with contextlib.suppress(OSError, AssertionError), Client(PORT, 1) as client:
            return client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
        return False

    assert eventually(answers, START_S)
    return Client(PORT)


@pytest.mark.usefixtures("_podman")
def test_the_documented_commands(release: Release, tmp_path: Path) -> None:
    """They run the image. Its jobs outlive a stop, and a new container with the same volume."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build/packages").symlink_to(release.folder)
    build, start = documented_commands().split("\n", 1)
    assert build == "tools/package image"
    start, stats, end = start.rsplit("\n", 2)
    assert end == ""

    def shell(command: str) -> str:
        return run("bash", "-euc", command, cwd=tmp_path)

    shell(start)
    with connected() as client:
        job = client.put(b"kept")
    assert re.search(r"^current-jobs-ready +1$", shell(stats), re.MULTILINE)
    shell("podman healthcheck run queue")  # systemd would run it
    shell("podman exec queue beanstalkd-py reload")
    for restart in ("podman start queue", f"podman rm queue; {start}"):
        begun = time.monotonic()
        shell("podman stop queue")
        assert time.monotonic() < begun + STOP_S
        assert shell("podman inspect --format '{{.State.ExitCode}}' queue") == "0\n"
        shell(restart)
        with connected() as client:
            assert client.job_stats(job)["state"] == "ready"
