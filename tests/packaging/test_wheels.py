"""The wheels and the sdist: their contents, and servers that run from them on each Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import servers
from processes import eventually
from releases import ROOT, Release, files_of_the_tree, run
from servers import ours

from beanstalkd_py import __version__

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1800)]

MANYLINUX, MUSLLINUX = "manylinux_2_28", "musllinux_1_2"
HERE, ARM = "x86_64", "aarch64"
ARCHIVE_S = EMULATED_START_S = 180.0
ZIG_PATH = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"
EXTENSIONS = ("core/_core", "history/_store", "pipeline/_columns")


VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OF_DEBIAN = ("3.13", "3.14")
"""Releases of Debian have these, and a test unpacks one that the machine lacks."""


def shell(command: str, *words: str) -> list[str]:
    """Run functions of tools/environment.sh; return the lines of their output."""
    script = f"set -e; source tools/environment.sh; {command}"
    return run("bash", "-c", script, "bash", *words, cwd=ROOT).splitlines()


def pythons() -> list[str]:
    """Return the versions of Python that this machine or Debian has, without unpacking any."""
    found = shell('for one; do ! local_python "$one" >/dev/null || echo "$one"; done', *VERSIONS)
    return sorted({*found, *OF_DEBIAN})


# --- contents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [HERE, ARM])
@pytest.mark.parametrize("libc", [MANYLINUX, MUSLLINUX])
def test_auditwheel_agrees_with_the_name(release: Release, libc: str, machine: str) -> None:
    wheel = release.wheel(f"{libc}_{machine}")
    assert wheel.name == f"beanstalkd_py-{__version__}-cp311-abi3-{libc}_{machine}.whl"
    audit = (ROOT / ".venv-packaging/bin/auditwheel", "show")
    text = " ".join(run(*audit, wheel, cwd=release.folder).split())
    found = re.search(r'platform tag: "([a-z]+)_(\d+)_(\d+)_(\w+)"', text)
    assert found is not None, text
    assert found[1] == libc.partition("_")[0]
    assert found[4] == machine
    limit = [int(number) for number in libc.split("_")[1:]]
    assert [int(found[2]), int(found[3])] <= limit


@pytest.mark.parametrize("libc", [MANYLINUX, MUSLLINUX])
def test_contents_are_those_of_the_tree(release: Release, libc: str) -> None:
    prefixes = ("beanstalkd_py/", "pyspark_")
    expected = {
        name: (ROOT / name).read_bytes()
        for name in files_of_the_tree()
        if name.startswith(prefixes) and not name.endswith("vendor/README.md")
    }
    with zipfile.ZipFile(release.wheel(f"{libc}_{HERE}")) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist() if name.startswith(prefixes)}
        others = {name.partition("/")[2] for name in wheel.namelist()} - set(found)
    found.pop("beanstalkd_py/console/static/vendor/README.md")
    assert found.pop("beanstalkd_py/commit.txt").decode() == f"{release.commit}\n"
    built = {f"beanstalkd_py/{name}.abi3.so" for name in EXTENSIONS}
    assert {name for name in found if name.endswith(".so")} == built
    assert {name: data for name, data in found.items() if name not in built} == expected
    assert {"data/share/man/man1/beanstalkd-py.1", "licenses/LICENSE"} <= others


def test_a_wheel_from_the_sdist_has_the_same_files(release: Release, tmp_path: Path) -> None:
    """Built with gcc and without a network, as a distribution does."""
    pip = (ROOT / ".venv-packaging/bin/python", "-m", "pip", "wheel", "--quiet")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    run(*pip, *offline, release.sdist, cwd=tmp_path, BEANSTALKD_PY_LTO="0", CFLAGS="-g0")
    (built,) = tmp_path.glob("*.whl")

    def contents(path: Path) -> dict[str, bytes]:
        own = re.compile(r".*(\.so|/RECORD|/WHEEL)")
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            return {name: b"" if own.fullmatch(name) else wheel.read(name) for name in names}

    assert contents(built) == contents(release.wheel(f"{MANYLINUX}_{HERE}"))


def test_the_sdist_has_the_sources_and_documents(release: Release) -> None:
    with tarfile.open(release.sdist) as archive:
        found = {member.name.partition("/")[2] for member in archive}
    shipped = re.compile(r"(csrc|beanstalkd_py|docs|systemd)/.*|[^/.]*\.(md|py|toml|in)|LICENSE")
    expected = {name for name in files_of_the_tree() if shipped.fullmatch(name)}
    assert expected <= found


# --- running --------------------------------------------------------------------------------------


def use(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with `program`, send commands and extensions, and read the history."""
    binlog, store = tmp_path / "binlog", tmp_path / "history"
    binlog.mkdir()
    monkeypatch.setenv("TEST_SERVER_COMMAND", f"{program} serve")
    with ours("-b", binlog, "--history", store) as server, server.connect(30) as client:
        job = client.put(b"hello")
        assert client.reserve() == job
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert client.stats()["total-jobs"] == "1"
        assert b"- list-jobs\n" in client.ask(b"features\r\n")
        second = client.put(b"second")
        assert b"{id: %d, state: ready" % second in client.ask(b"list-jobs default any 0 10\r\n")
        assert client.ask(b"truncate default\r\n") == b"TRUNCATED 1\r\n"
        third = client.put(b"kept in the binlog")

        def is_archived() -> bool:
            """The command fails until the archiver has made the store and the topic."""
            command = (str(program), "history", "--store", str(store), "ls", "default")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode == 0 and "truncated" in done.stdout

        assert eventually(is_archived, ARCHIVE_S)
    assert f"{third}" in run(program, "binlog", "dump", binlog, cwd=tmp_path)


@pytest.mark.parametrize("version", pythons())
def test_a_fresh_environment(
    version: str, release: Release, uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    interpreter = shell('python_of "$1"', version)[-1]
    run(interpreter, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin/python"
    wheel = release.wheel(f"{MANYLINUX}_{HERE}")
    run(uv, "pip", "install", "--quiet", "--python", python, wheel, cwd=tmp_path)
    program = environment / "bin/beanstalkd-py"
    expected = f"beanstalkd_py {__version__} (commit {release.commit}, beanstalkd 1.13)\n"
    assert run(program, "--version", cwd=tmp_path) == expected
    shown = run(python, "-c", "import sys; print(*sys.version_info[:2], sep='.')", cwd=tmp_path)
    assert shown == f"{version}\n"
    use(program, tmp_path, monkeypatch)


def test_tools_that_install_programs(release: Release, uv: Path, tmp_path: Path) -> None:
    """The commands of docs/install.md, with a folder of packages in place of PyPI."""
    programs = tmp_path / "programs"
    folders = {
        "PIPX_HOME": f"{tmp_path}/pipx",
        "PIPX_BIN_DIR": f"{programs}/pipx",
        "PIPX_MAN_DIR": f"{tmp_path}/man",
        "UV_TOOL_DIR": f"{tmp_path}/uv",
        "UV_TOOL_BIN_DIR": f"{programs}/uv",
        # It may have another build from a folder of the same name; pipx uses uv, too.
        "UV_NO_CACHE": "1",
    }
    links = f"--find-links {release.folder}"
    pipx = (sys.executable, "-m", "pipx", "install", "--quiet", "--pip-args", links)
    run(*pipx, "beanstalkd_py", cwd=tmp_path, **folders)
    assert (tmp_path / "man/man1/beanstalkd-py-serve.1").exists()
    tool = (uv, "tool", "install", "--quiet", "--find-links", release.folder)
    run(*tool, "beanstalkd_py", cwd=tmp_path, **folders)
    for name in ("pipx", "uv"):
        program = programs / name / "beanstalkd-py"
        assert release.commit in run(program, "--version", cwd=tmp_path)


@pytest.fixture(scope="module")
def arm_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script that runs Debian's Python for aarch64; its children run by the same script."""
    root = tmp_path_factory.mktemp("aarch64")
    packages = "--include=python3-minimal,libpython3-stdlib,libstdc++6"
    make = ("mmdebstrap", "--quiet", "--arch=arm64", "--variant=extract", packages)
    run(*make, "bookworm", root / "root", "http://deb.debian.org/debian", cwd=root)
    script = root / "python"
    libraries = f"{root}/root/lib/aarch64-linux-gnu:{root}/root/usr/lib/aarch64-linux-gnu"
    # Without -L of QEMU, which would redirect the paths of binlogs, too.
    script.write_text(
        f"#!/bin/sh\nexport PYTHONHOME={root}/root/usr\n"
        f"exec qemu-aarch64-static {root}/root/lib/ld-linux-aarch64.so.1 --argv0 "
        f'"$0" --library-path {libraries} {root}/root/usr/bin/python3.11 "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def musl_pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scripts by machine, like that of `arm_python`. Building these Pythons takes minutes."""
    root = tmp_path_factory.mktemp("musl")
    zig = run(ROOT / ".venv-packaging/bin/python", "-c", ZIG_PATH, cwd=root).strip()
    local = shell('python_of "$1"', "3.11")[-1]

    def build(machine: str) -> Path:
        program = Path(__file__).with_name("musl_python")
        run(program, machine, root / machine, zig, local, cwd=root)
        return root / machine / "python"

    with ThreadPoolExecutor() as pool:
        return dict(zip((HERE, ARM), pool.map(build, (HERE, ARM)), strict=True))


def install_and_use(
    release: Release,
    tag: str,
    python: Path,
    platform: str,
    uv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Install the wheel of `tag` for a Python of another system, and use it."""
    site, overrides = tmp_path / "site", tmp_path / "overrides"
    install = (uv, "pip", "install", "--quiet", "--target", site)
    overrides.touch()
    if tag.startswith(MUSLLINUX):
        # It has no wheel for musl. Without a compiler its sdist leaves out the extension module.
        sdist = ("--no-deps", "--no-binary", ":all:", "zope.interface")
        run(*install, *sdist, cwd=tmp_path, CC="false")
        assert not list(site.rglob("*.so"))
        overrides.write_text("zope.interface; python_version < '3'\n")
    target = ("--python-platform", platform, "--python-version", "3.11", "--only-binary", ":all:")
    run(*install, *target, "--overrides", overrides, release.wheel(tag), cwd=tmp_path)
    program = tmp_path / "beanstalkd-py"
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH={site}\nexec {python} -P -m beanstalkd_py "$@"\n'
    )
    program.chmod(0o755)
    assert release.commit in run(program, "--version", cwd=tmp_path)
    monkeypatch.setattr(servers, "START_TIMEOUT_S", EMULATED_START_S)
    use(program, tmp_path, monkeypatch)
    # The files are the same on all machines.
    here = (sys.executable, "-P", "-m", "beanstalkd_py")
    run(*here, "binlog", "verify", tmp_path / "binlog", cwd=tmp_path)
    run(*here, "history", "--store", tmp_path / "history", "verify", cwd=tmp_path)


def test_aarch64(
    release: Release,
    uv: Path,
    arm_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tag, platform = f"{MANYLINUX}_{ARM}", f"{ARM}-{MANYLINUX}"
    install_and_use(release, tag, arm_python, platform, uv, tmp_path, monkeypatch)


@pytest.mark.parametrize("machine", [HERE, ARM])
def test_musl(
    machine: str,
    release: Release,
    uv: Path,
    musl_pythons: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = musl_pythons[machine]
    shown = run(python, "-c", "import sysconfig as s; print(s.get_config_var('SOABI'))", cwd=ROOT)
    assert shown == f"cpython-311-{machine}-linux-musl\n"
    tag, platform = f"{MUSLLINUX}_{machine}", f"{machine}-unknown-linux-musl"
    install_and_use(release, tag, python, platform, uv, tmp_path, monkeypatch)
