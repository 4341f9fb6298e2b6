"""Checkouts of the tree, and releases built from them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost")
BUILD_S = 1200.0


def run(*command: str | Path, cwd: Path, status: int = 0, **environment: str) -> str:
    """Return the output of a command on stdout and stderr."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == status, f"{command}: {done.stdout}"
    return done.stdout


def files_of_the_tree() -> list[str]:
    """Return files that are committed or may be."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return [name for name in listed.split("\0") if (ROOT / name).is_file()]


class Release(NamedTuple):
    """A checkout without uncommitted changes, and what tools/release built from it."""

    checkout: Path
    folder: Path

    def wheel(self, tag: str) -> Path:
        (path,) = self.folder.glob(f"*-{tag}.whl")
        return path

    @property
    def sdist(self) -> Path:
        (path,) = self.folder.glob("*.tar.gz")
        return path

    @property
    def commit(self) -> str:
        return run("git", "rev-parse", "--short=12", "HEAD", cwd=self.checkout).strip()


def clone(source: Path, folder: Path) -> Path:
    """Clone a checkout. It shares the environments of the tree."""
    run("git", "clone", "--quiet", source, folder, cwd=source)
    (folder / ".git/info/exclude").write_text("/.venv*\n")
    for name in (".venv", ".venv-packaging"):
        (folder / name).symlink_to(ROOT / name)
    return folder
