"""Builds the C parts with the package.

Everything static is in pyproject.toml. This file holds what setuptools takes only from code: the
cffi modules, the wheel's stable-ABI tag, the commit of a checkout, manual pages, and a readme that
may be missing from a partial checkout.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
README = ROOT / "README.md"
# The sdist of tools/package has the manual pages; in a tree `tools/docs man` makes them.
MANUAL = [*Path("man").glob("*.1")] or [*Path("build/docs/man").glob("*.1")]
DESCRIBE = ("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


def write_commit(folder: Path) -> None:
    """Write the commit for `--version`; nothing outside of a checkout or without git."""
    if not (ROOT / ".git").exists():
        return
    try:
        done = subprocess.run(DESCRIBE, cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return
    if done.returncode == 0:
        (folder / "beanstalkd_py/commit.txt").write_bytes(done.stdout)


class BuildWithCommit(build_py):
    """An editable install has no commit, because its files follow the tree."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib))


class SdistWithCommit(sdist):
    """Add the commit to the sdist, whose builds have no checkout."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir))


setup(
    cffi_modules=[
        "beanstalkd_py/build_extensions.py:core",
        "beanstalkd_py/build_extensions.py:store",
        "beanstalkd_py/build_extensions.py:columns",
    ],
    cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit},
    data_files=[("share/man/man1", sorted(map(str, MANUAL)))],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
)
