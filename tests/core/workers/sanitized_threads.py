"""Programs of several threads that test the C of the package, with ThreadSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from core.workers.reserve_library import CSRC

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan", "-pthread"]
LIMIT_S = 120


def run_threads(folder: Path, program: str, *sources: str) -> None:
    """Compile the program with these files of csrc, and run it. Raises CalledProcessError."""
    binary = folder / "threads"
    files = [str(Path(__file__).with_name(program)), *(str(CSRC / source) for source in sources)]
    # Not with the other sanitizers, which the tests of a sanitized build load.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    compiler = ["cc", *FLAGS, "-I", str(CSRC), *files, "-o", str(binary)]
    subprocess.run(compiler, check=True, env=environment)
    # Without address space layout randomization, which some versions of the sanitizer require.
    subprocess.run(["setarch", "-R", str(binary)], check=True, timeout=LIMIT_S, env=environment)
