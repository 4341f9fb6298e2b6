"""The .deb on a bare Debian 12, as an administrator installs, upgrades and removes it.

With PACKAGE_FOR=ubuntu24.04 it is built and tested on a bare Ubuntu 24.04.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from processes import slowness
from systemd.load import Load, fill, filled
from systemd.machine import Machine, booted_system
from wire import Client

from beanstalkd_py import __version__

ROOT = Path(__file__).parents[2]
SERVICE, DEBIANS = "beanstalkd-py.service", "beanstalkd.service"
UBUNTU = "ubuntu24.04"
TARGET = os.environ.get("PACKAGE_FOR", "debian12")
VERSION = f"{__version__}+{TARGET}"
ARCHIVES = {
    "debian12": ["bookworm"],
    UBUNTU: ["noble", "http://archive.ubuntu.com/ubuntu"],
}
"""Suites and mirrors, as arguments of mmdebstrap."""
UBUNTU_KEYS = Path(__file__).with_name("ubuntu-keyring-2018-archive.gpg")
"""Of the package ubuntu-keyring; F6EC B376 2474 EDA9 D21B 7022 8719 20D1 991B C93C."""
BUILD_NEEDS = "build-essential,debhelper,dh-python,git,python3-dev,python3-pip,python3-venv"
BUILD = """
set -eu
cp -R "$TREE" "$1/srv/tree"
cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$1/etc/"
chroot "$1" env HOME=/root LANG=C.UTF-8 PIP_FIND_LINKS= /srv/tree/tools/package deb /srv
cp "$1"/srv/*.deb "$OUT"
"""
INSTALLED_KB = 60_000
START_S = 30.0
OUTAGE_S = 2.0
PROMPT_S = 20.0
COMMAND_S = 1200.0
# Written by apt and dpkg themselves.
OF_APT = ("/var/cache/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/log")
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]


def run(
    *command: str | Path, umask: int = 0o022, env: Mapping[str, str | Path] | None = None
) -> str:
    done = subprocess.run(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S,
        check=False,
        umask=umask,
        env={**os.environ, **{name: str(value) for name, value in (env or {}).items()}},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def make_root(
    root: Path, needs: str, *hooks: str, env: Mapping[str, str | Path] | None = None
) -> None:
    """Unpack the distribution with some packages; `hooks` are scripts that get the folder."""
    suite, *mirror = ARCHIVES[TARGET]
    options = [f"--include={needs}", *(f"--customize-hook={hook}" for hook in hooks)]
    if TARGET == UBUNTU:
        options += [f"--keyring={UBUNTU_KEYS}", "--components=main,universe"]
    run("mmdebstrap", "--quiet", "--variant=apt", *options, suite, root, *mirror, env=env)


def build(folder: Path, tree: Path = ROOT, umask: int = 0o022) -> Path:
    """Build the package as its users do."""
    folder.mkdir(exist_ok=True)
    if TARGET == UBUNTU:
        build_elsewhere(folder, tree, umask)
    else:
        run(tree / "tools/package", "deb", folder, umask=umask)
    (package,) = folder.glob("*.deb")
    return package


def build_elsewhere(folder: Path, tree: Path, umask: int) -> None:
    """Build it on the distribution, which gets the manual pages from here."""
    time_of_commit = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    env: dict[str, str | Path] = {"SOURCE_DATE_EPOCH": time_of_commit}
    run(tree / "tools/docs", "man", env=env)
    copy = folder / "tree"
    shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".venv*", "build"), symlinks=True)
    shutil.copytree(tree / "build/docs", copy / "build/docs")
    script = folder / "build.sh"
    script.write_text(f"umask {umask:o}\n{BUILD}")
    env |= {"TREE": copy, "OUT": folder}
    make_root(Path("/dev/null"), BUILD_NEEDS, f'sh {script} "$1"', env=env)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package with a higher version."""
    folder = tmp_path_factory.mktemp("newer")
    run("dpkg-deb", "--raw-extract", package, folder / "files")
    control = folder / "files/DEBIAN/control"
    control.write_text(control.read_text().replace(VERSION, f"99+{VERSION}"))
    run("dpkg-deb", "--build", "--root-owner-group", "-Znone", folder / "files", folder)
    (made,) = folder.glob("*.deb")
    return made


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the bare distribution with Python, and with beanstalkd's package in /srv."""
    root = tmp_path_factory.mktemp("debian") / "root"
    download = "chroot \"$1\" sh -c 'cd /srv && apt-get -q download beanstalkd'"
    make_root(root, "systemd-sysv,python3,adduser,lsb-base,netbase", download)
    return root


@pytest.fixture
def system(debian: Path, package: Path, newer: Path, tmp_path: Path) -> Iterator[Machine]:
    packages = tmp_path / "files/srv"
    packages.mkdir(parents=True)
    shutil.copy(package, packages / "beanstalkd-py.deb")
    shutil.copy(newer, packages / "newer.deb")
    with booted_system(debian, tmp_path) as machine:
        yield machine


def apt(machine: Machine, *words: str) -> str:
    command = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", "--quiet=2", *words]
    return machine.run(*command).stdout


def install(machine: Machine, name: str = "beanstalkd-py.deb") -> str:
    return apt(machine, "install", f"/srv/{name}")


def install_debians(machine: Machine) -> None:
    machine.run("sh", "-c", "dpkg --install /srv/beanstalkd_*.deb")
    with machine.path("/etc/default/beanstalkd").open("a") as options:
        options.write('BEANSTALKD_EXTRA="-b /var/lib/beanstalkd -z 70000"\n')
    machine.systemctl("restart", DEBIANS)
    machine.wait_until_listening()


def states(machine: Machine, unit: str) -> tuple[str, str]:
    """Return whether a unit runs, and whether it starts at the next boot."""
    enabled = machine.systemctl("is-enabled", unit, check=False)
    return machine.show(unit, "ActiveState"), enabled


def running_units(machine: Machine) -> list[str]:
    listed = machine.systemctl("list-units", "--plain", "--no-legend", "beanstalkd*.service")
    return [line.split()[0] for line in listed.splitlines() if " running " in line]


def files(machine: Machine) -> set[str]:
    found = machine.run("find", "/", "-xdev").stdout.splitlines()
    return {path for path in found if not path.startswith(OF_APT)}


def size_kb(machine: Machine) -> int:
    return int(machine.run("du", "-sk", "/usr").stdout.split()[0])


def test_the_same_commit_gives_the_same_bytes(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in another folder and with another umask."""
    tree, folder = tmp_path / "tree", tmp_path / "package"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "build"))
    (tree / ".venv").symlink_to(ROOT / ".venv")
    time_of_commit = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", time_of_commit)
    assert build(folder, tree, umask=0o077).read_bytes() == package.read_bytes()


def test_lintian_is_content(package: Path) -> None:
    run("lintian", "--allow-root", "--fail-on", "error,warning", package)


def test_install_remove_and_purge(system: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    before, size_before = files(system), size_kb(system)
    begun = time.monotonic()
    install(system)
    with system.connect() as client:
        job = client.put(b"kept")
    took = time.monotonic() - begun
    size = size_kb(system) - size_before
    with capsys.disabled():
        print(f"\nserves after {took:.1f} s, installed size {size / 1000:.1f} MB")
    assert took < START_S
    assert size < INSTALLED_KB
    assert states(system, SERVICE) == ("active", "enabled")
    assert __version__ in system.run("beanstalkd-py", "--version").stdout
    assert " 0100007F:2C24 " in system.run("cat", "/proc/net/tcp").stdout, "not on 127.0.0.1"
    for name in (
        "bash-completion/completions/beanstalkd-py",
        "fish/vendor_completions.d/beanstalkd-py.fish",
        "zsh/vendor-completions/_beanstalkd-py",
        "man/man1/beanstalkd-py.1.gz",
        "man/man1/beanstalkd-py-serve.1.gz",
        "man/man8/beanstalkd-py-takeover.8.gz",
        "doc/beanstalkd-py/examples/alerts.yml",
        "doc/beanstalkd-py/examples/dashboard.json",
    ):
        assert system.path(f"/usr/share/{name}").stat().st_size > 500, name

    system.path("/etc/default/beanstalkd-py-mail").write_text("OPTIONS=-p 11400\n")
    system.systemctl("start", "beanstalkd-py@mail")
    assert running_units(system) == [SERVICE, "beanstalkd-py@mail.service"]
    apt(system, "remove", "beanstalkd-py")
    assert running_units(system) == []
    assert system.path("/etc/beanstalkd-py.toml").exists()
    install(system)
    with system.connect() as client:
        assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 4\r\nkept\r\n" % job

    apt(system, "purge", "beanstalkd-py")
    # Options that an administrator has added for an instance.
    assert files(system) - before == {"/etc/default/beanstalkd-py-mail"}
    assert not before - files(system)


def test_an_upgrade_under_load(system: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    install(system)
    system.path("/etc/default/beanstalkd-py-mail").write_text("OPTIONS=-p 11400\n")
    system.systemctl("start", "beanstalkd-py@mail")
    instance = system.main_pid("beanstalkd-py@mail")
    fill(system, 1_000_000)
    configuration = system.path("/etc/beanstalkd-py.toml")
    configuration.write_text(configuration.read_text() + "max-job-size = 70000\n")
    with Load(system) as load:
        assert load.grows()
        install(system, "newer.deb")
        slow = slowness()
        assert load.grows()
    with capsys.disabled():
        print(
            f"\nupgrade with a million jobs: {load.longest_gap_s:.2f} s without a reply,"
            f" {slow:.1f} times slower than a quiet machine"
        )
    assert load.longest_gap_s < OUTAGE_S * slow
    load.check()
    with system.connect() as client:
        assert filled(client) == 1_000_000
        assert client.stats()["max-job-size"] == "70000"
    shown = system.run("dpkg-query", "--show", "--showformat=${Version}", "beanstalkd-py").stdout
    assert shown == f"99+{VERSION}"
    assert system.main_pid("beanstalkd-py@mail") not in (0, instance)


def test_take_over_and_back(system: Machine) -> None:
    install_debians(system)
    fill(system, 100_000)
    assert "run beanstalkd-py-takeover" in install(system)
    assert (states(system, DEBIANS), states(system, SERVICE)) == (
        ("active", "enabled"),
        ("inactive", "disabled"),
    )

    def check(client: Client, jobs: list[int]) -> None:
        assert filled(client) == 100_000
        assert all(client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ") for job in jobs)
        jobs.append(client.put(b"x" * 69_998))  # with Debian's option -z

    jobs: list[int] = []
    with system.connect() as client:
        check(client, jobs)
    for words, unit, other in (
        ([], SERVICE, DEBIANS),
        (["--back"], DEBIANS, SERVICE),
        ([], SERVICE, DEBIANS),
    ):
        system.run("beanstalkd-py-takeover", *words)
        system.wait_until_listening()
        assert states(system, unit) == ("active", "enabled")
        assert states(system, other) == ("inactive", "disabled")
        with system.connect() as client:
            check(client, jobs)
    install(system, "newer.deb")
    with system.connect() as client:
        check(client, jobs)
    apt(system, "purge", "beanstalkd-py")
    system.systemctl("start", DEBIANS)
    system.wait_until_listening()
    with system.connect() as client:
        check(client, jobs)
    assert len(jobs) == 6


def test_what_the_takeover_refuses(system: Machine) -> None:
    install_debians(system)
    install(system)
    options = system.path("/etc/default/beanstalkd")
    durable = options.read_text()
    options.write_text(durable.replace("BEANSTALKD_EXTRA=", "#"))
    system.systemctl("restart", DEBIANS)
    assert "in memory only" in system.run("beanstalkd-py-takeover", check=False).stderr
    assert states(system, DEBIANS) == ("active", "enabled")

    system.systemctl("stop", DEBIANS)
    configuration = system.path("/etc/beanstalkd-py.toml")
    text = configuration.read_text()
    configuration.write_text("no-such-option = 1\n")
    assert "does not start" in system.run("beanstalkd-py-takeover", check=False).stderr
    assert states(system, DEBIANS) == ("active", "enabled")
    assert states(system, SERVICE)[1] == "disabled"

    system.systemctl("stop", DEBIANS)
    configuration.write_text(text)
    system.run("beanstalkd-py-takeover")
    refused = system.run("beanstalkd-py-takeover", "--back", check=False).stderr
    assert "without the jobs" in refused
    options.write_text(durable)
    system.path("/etc/default/beanstalkd-py").write_text("OPTIONS=--workers 2\n")
    system.systemctl("restart", SERVICE)
    assert "several workers" in system.run("beanstalkd-py-takeover", "--back", check=False).stderr
    assert states(system, SERVICE) == ("active", "enabled")


def test_a_used_port_prevents_the_start(system: Machine) -> None:
    install_debians(system)
    apt(system, "remove", "beanstalkd")
    # Debian 12 masks the unit, newer releases leave it enabled by /etc/init.d/beanstalkd.
    system.systemctl("unmask", DEBIANS)
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 11300)); time.sleep(600)"
    system.run("systemd-run", "--unit=other", "python3", "-c", listen)
    system.wait_until_listening()
    assert "port 11300 is in use" in install(system)
    assert states(system, SERVICE) == ("inactive", "disabled")
    system.systemctl("stop", "other")
    assert "port 11300" not in install(system, "newer.deb")
    assert states(system, SERVICE) == ("inactive", "disabled"), "only an administrator enables it"
    apt(system, "purge", "beanstalkd-py")
    assert "not started" not in install(system)
    assert states(system, SERVICE) == ("active", "enabled")
