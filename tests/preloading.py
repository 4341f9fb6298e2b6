"""Libraries that are preloaded into servers to change or record their system calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def build_library(source: Path, folder: Path) -> Path:
    """Compile a C file into a library in `folder`."""
    made = folder / source.with_suffix(".so").name
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", made, source]
    subprocess.run(command, check=True)
    return made


def preload(library: Path, patch: pytest.MonkeyPatch) -> None:
    """Preload the library into new processes, in addition to libraries of a sanitizer."""
    others = os.environ.get("LD_PRELOAD", "")
    patch.setenv("LD_PRELOAD", f"{others} {library}".strip())
