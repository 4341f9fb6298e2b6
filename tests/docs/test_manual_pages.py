"""Manual pages are a part of the package once they have been built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.costly
def test_built_pages_are_installed(tmp_path: Path) -> None:
    for name in ("beanstalkd_py", "csrc", "pyproject.toml", "setup.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = tmp_path / "build/docs/man/beanstalkd-py.1"
    page.parent.mkdir(parents=True)
    page.write_text("a page")
    command = [sys.executable, "setup.py", "-q", "install_data", f"--install-dir={tmp_path}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "share/man/man1/beanstalkd-py.1").read_text() == "a page"
