"""Messages of `tools/serve` about installations. This test downloads nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
PARTS = ("tools", "csrc", "beanstalkd_py", "pyproject.toml", "setup.py", "MANIFEST.in")
REST = ("LICENSE", "README.md", *(path.name for path in TREE.glob("pyspark_*.py")))
PYTHON = '#!/bin/sh\ncase "$*" in *__version__*) echo 1.2.3 ;; esac\n'
PROGRAM = '#!/bin/sh\necho "$@"\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the tree, with an environment whose Python installs nothing."""
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "*.o")
    for name in (*PARTS, *REST):
        source = TREE / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=skipped)
        else:
            shutil.copy(source, tmp_path / name)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name, text in (("python", PYTHON), ("beanstalkd-py", PROGRAM)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def serve(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(tree / "tools/serve"), "-p", "11400"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.costly
def test_installed_packages_are_reported_once(tree: Path) -> None:
    done = serve(tree)
    assert done.stdout == "serve -l 127.0.0.1 -p 11300 -b ./data -p 11400\n"
    installing, installed, starting = done.stderr.splitlines()
    assert installing.startswith("serve: installing dependencies: cffi")
    assert "gevent" in installing
    assert installed == "serve: installed beanstalkd_py 1.2.3 in .venv"
    assert starting.startswith("serve: starting beanstalkd-py serve; ")
    assert serve(tree).stderr.splitlines() == [starting]
