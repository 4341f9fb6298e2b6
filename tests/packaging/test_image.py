"""The container image: built without a registry, and run by runc on a read-only root."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import eventually
from releases import Release

DATA = "var/lib/beanstalkd-py"
LARGEST = 120_000_000
COMMAND_S = 60.0
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]


@dataclass
class Image:
    """An unpacked image. `config` has its settings as Docker names them."""

    root: Path
    config: dict[str, Any]


class Container:
    """A container of the image. Its volume is on this machine."""

    def __init__(self, image: Image, folder: Path, *arguments: str) -> None:
        self._state = folder / "state"
        self._id = f"beanstalkd-py-test-{os.getpid()}-{folder.name}"
        self.volume = folder / "volume"
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"
        folder.mkdir(exist_ok=True)
        bundle = folder / "bundle"
        bundle.mkdir(exist_ok=True)
        if not self.volume.exists():
            # An engine copies the image's folder, with its owner, into an empty volume.
            shutil.copytree(image.root / DATA, self.volume)
            owner = (image.root / DATA).stat()
            os.chown(self.volume, owner.st_uid, owner.st_gid)
        (bundle / "config.json").unlink(missing_ok=True)
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True, timeout=COMMAND_S)
        spec = json.loads((bundle / "config.json").read_text())
        self._adapt(spec, image, arguments or image.config["Cmd"])
        (bundle / "config.json").write_text(json.dumps(spec))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._runc("run", "--bundle", str(bundle), self._id),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _adapt(self, spec: dict[str, Any], image: Image, arguments: list[str]) -> None:
        user, group = map(int, image.config["User"].split(":"))
        spec["root"] = {"path": str(image.root), "readonly": True}
        spec["process"] |= {
            "terminal": False,
            "user": {"uid": user, "gid": group},
            "args": [*image.config["Entrypoint"], *arguments],
            "env": image.config["Env"],
            "cwd": image.config["WorkingDir"],
            "capabilities": {},
        }
        volume = {"type": "bind", "source": str(self.volume), "options": ["bind", "rw"]}
        spec["mounts"].append({"destination": f"/{DATA}", **volume})

    def _runc(self, *words: str) -> list[str]:
        return ["runc", "--root", str(self._state), *words]

    def exec(self, *command: str) -> subprocess.CompletedProcess[str]:
        words = self._runc("exec", self._id, *command)
        return subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)

    def ask(self, *words: str) -> str:
        """Run a command of beanstalkd-py inside, which must succeed."""
        done = self.exec("beanstalkd-py", *words)
        assert done.returncode == 0, f"{done.stderr}{self.log.read_text()}"
        return done.stdout

    def wait_until_serving(self) -> None:
        def serves() -> bool:
            assert self._process is not None and self._process.poll() is None, self.log.read_text()
            return self.exec("beanstalkd-py", "stats").returncode == 0

        assert eventually(serves, COMMAND_S), self.log.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to process 1; return the exit status."""
        assert self._process is not None
        subprocess.run(self._runc("kill", self._id, number.name), check=True, timeout=COMMAND_S)
        return self._process.wait(COMMAND_S)

    def remove(self) -> None:
        command = self._runc("delete", "--force", self._id)
        subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False)
        if self._process is not None:
            self._process.wait(COMMAND_S)


@contextlib.contextmanager
def running(image: Image, folder: Path, *arguments: str) -> Iterator[Container]:
    container = Container(image, folder, *arguments)
    try:
        container.wait_until_serving()
        yield container
    finally:
        container.remove()


@pytest.fixture(scope="module")
def archive(release: Release) -> Path:
    assert os.geteuid() == 0, "only root can run containers here"
    (path,) = release.folder.glob("*-image.tar")
    return path


@pytest.fixture(scope="module")
def image(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    assert shutil.which("runc"), "runc is missing: run tools/test --packaging, which installs it"
    root = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as outer:

        def member(name: str) -> bytes:
            file = outer.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(member("manifest.json"))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(member(layer))) as inner:
                inner.extraction_filter = lambda member, _: member  # an argument since 3.11.4
                inner.extractall(root)
        root.chmod(0o755)
        return Image(root, json.loads(member(manifest["Config"]))["config"])


def test_the_size(archive: Path) -> None:
    assert archive.stat().st_size < LARGEST


def test_the_settings(image: Image) -> None:
    assert image.config["User"] == "11300:11300"
    assert image.config["StopSignal"] == "SIGTERM"
    assert list(image.config["Volumes"]) == [f"/{DATA}"]
    assert list(image.config["ExposedPorts"]) == ["11300/tcp"]
    assert image.config["Healthcheck"]["Test"] == ["CMD", "beanstalkd-py", "stats"]


def test_jobs_outlive_the_container(image: Image, tmp_path: Path) -> None:
    with running(image, tmp_path / "one") as container:
        job = container.ask("put", "kept").strip()
        assert container.ask("peek", job) == "kept"
        assert "worker" in container.ask("workers")  # by the control socket
        container.ask("reload")
        assert container.stop() == 0
        assert "Traceback" not in container.log.read_text()
    with running(image, tmp_path / "one") as container:
        assert container.ask("peek", job) == "kept"


def test_the_root_is_read_only_and_the_user_unprivileged(image: Image, tmp_path: Path) -> None:
    before = set(image.root.rglob("*"))
    with running(image, tmp_path / "one") as container:
        mounts = container.exec("python3", "-c", "print(open('/proc/1/mounts').read())").stdout
        (options,) = (line.split()[3] for line in mounts.splitlines() if " / " in line)
        assert "ro" in options.split(",")
        status = container.exec("python3", "-c", "print(open('/proc/1/status').read())").stdout
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["11300"] * 4
        assert int(fields["CapEff"], 16) == 0
    assert set(image.root.rglob("*")) == before


def test_the_health_check(image: Image, tmp_path: Path) -> None:
    check = image.config["Healthcheck"]["Test"][1:]
    with running(image, tmp_path / "one") as container:
        assert container.exec(*check).returncode == 0
        # Nothing serves there.
        elsewhere = container.exec("python3", "-c", ELSEWHERE, *check)
        assert elsewhere.returncode == 2, elsewhere


ELSEWHERE = """
import os, sys
os.environ["BEANSTALKD_ADDR"] = "127.0.0.1:11399"
os.execvp(sys.argv[1], sys.argv[1:])
"""
ORPHAN = "import os, time; os.fork() or (time.sleep(0.2), os._exit(0))"
STATES = """
import glob
for path in glob.glob("/proc/[0-9]*/stat"):
    print(open(path).read().rpartition(")")[2].split()[0])
"""


def test_process_1_reaps_orphans_and_forwards_signals(image: Image, tmp_path: Path) -> None:
    with running(image, tmp_path / "one") as container:
        for _ in range(3):
            container.exec("python3", "-c", ORPHAN)
        assert eventually(lambda: "Z" not in container.exec("python3", "-c", STATES).stdout, 10)
        assert container.stop(signal.SIGINT) == 0


def test_extras_are_installed(image: Image, tmp_path: Path) -> None:
    options = ("--console", "127.0.0.1:11381", "--workers", "2")
    with running(image, tmp_path / "one", "serve", "-b", f"/{DATA}", *options) as container:
        done = container.exec("python3", "-c", "import nats, nkeys, werkzeug, sqlite3, ssl")
        assert done.returncode == 0, done.stderr
        fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:11381/').status)"
        assert eventually(lambda: container.exec("python3", "-c", fetch).stdout == "200\n", 20)
