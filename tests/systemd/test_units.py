"""The units of systemd/, checked by systemd's own tools."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from beanstalkd_py.cli.server.config_layers import settings_of
from beanstalkd_py.cli.server.serve import serve

FOLDER = Path(__file__).parents[2] / "systemd"
SERVICE, TEMPLATE, SOCKET = (
    "beanstalkd-py.service",
    "beanstalkd-py@.service",
    "beanstalkd-py.socket",
)
SHIP, TIMER = "beanstalkd-py-ship.service", "beanstalkd-py-ship.timer"
EXPOSURE = 1.5


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("systemd-analyze")
    assert tool, "systemd-analyze is missing: run tools/test, which installs systemd"
    command = [tool, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the units adapted to a program outside /usr/bin."""
    program = Path(sys.executable).with_name("beanstalkd-py")
    assert program.exists()
    for path in FOLDER.glob("beanstalkd-py*"):
        text = path.read_text().replace("/usr/bin/beanstalkd-py", str(program))
        (tmp_path / path.name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", [SERVICE, "beanstalkd-py@mail.service", SOCKET, SHIP, TIMER])
def test_systemd_verifies_the_units(installed: Path, name: str) -> None:
    if "@" in name:
        (installed / name).symlink_to(installed / TEMPLATE)
    done = analyze("verify", "--man=no", installed / name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [SERVICE, TEMPLATE])
def test_security_exposure(name: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", FOLDER / name)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= EXPOSURE


def test_the_template_differs_in_its_name_only() -> None:
    """An instance has its own port, so it does not conflict with Debian's beanstalkd."""
    conflicts = "beanstalkd.service beanstalkd.socket"

    def settings(name: str) -> list[str]:
        lines = (FOLDER / name).read_text().splitlines()
        return [line for line in lines if line and not line.startswith("#")]

    plain = [line.replace(" %i", "").replace("-%i", "") for line in settings(TEMPLATE)]
    service = settings(SERVICE)
    service.remove(f"Conflicts={conflicts}")
    service[service.index(f"After=network.target {conflicts}")] = "After=network.target"
    optional = [line.replace("EnvironmentFile=-", "EnvironmentFile=") for line in service]
    assert plain == optional


def test_the_example_configuration_is_complete_and_valid(tmp_path: Path) -> None:
    text = (FOLDER / "beanstalkd-py.toml").read_text()
    lines = re.findall(r"^#?([a-z-]+ = .*)$", text, re.MULTILINE)
    assert {line.split()[0] for line in lines} == set(settings_of(serve))
    # These exclude each other.
    is_replication = partial(re.match, r"replicate")
    is_excluded = partial(re.match, r"history|tls|fsync-ms|no-fsync")
    for name, left_out in (("alone", is_replication), ("replicated", is_excluded)):
        settings = [line for line in lines if not left_out(line)]
        (tmp_path / f"{name}.toml").write_text("\n".join(settings))
    for path in (FOLDER / "beanstalkd-py.toml", *tmp_path.glob("*.toml")):
        command = [sys.executable, "-m", "beanstalkd_py", "config", "check", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr


def test_the_options_of_the_environment_file_are_valid() -> None:
    text = (FOLDER / "beanstalkd-py.default").read_text()
    examples = re.findall(r'^#?OPTIONS="(.*)"$', text, re.MULTILINE)
    assert examples
    for example in examples:
        if "--config" in example:
            assert example.split()[1:] == ["/etc/beanstalkd-py.toml"]
            continue
        # An unknown user is an error only after all options have been parsed.
        words = ["-m", "beanstalkd_py", "serve", *example.split(), "-u", "no-such-user"]
        command = [sys.executable, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert "no-such-user" in done.stderr, done.stderr


def test_the_way_back_to_debian_keeps_the_history() -> None:
    """A reshard without --history would drop finished jobs that are not archived yet."""
    text = (FOLDER / "debian-folder.conf").read_text()
    assert "reshard --workers 1 /var/lib/beanstalkd" in text and "--history DIR" in text
