"""Wheels, sdist and image of a release, built once per run from a copy of the tree."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from releases import AUTHOR, ROOT, Release, clone, files_of_the_tree, run


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = clone(ROOT, tmp_path_factory.mktemp("checkout") / "tree")
    run("git", "rm", "--quiet", "-r", ".", cwd=folder)
    for name in files_of_the_tree():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run("git", "add", "--all", cwd=folder)
    run("git", *AUTHOR, "commit", "--quiet", "--allow-empty", "-m", "Changes", cwd=folder)
    return folder


@pytest.fixture(scope="session")
def release(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    run(checkout / "tools/release", folder, cwd=checkout, RELEASE_PACKAGES="sdist wheels image")
    return Release(checkout, folder)


@pytest.fixture(scope="session")
def uv() -> Path:
    return Path(sys.executable).with_name("uv")
