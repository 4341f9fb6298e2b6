"""Other Pythons for tasks: virtual environments that lack this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OF_SPARK = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "dateutil", "six", "pytz", "tzdata")


def bare_python(folder: Path) -> str:
    """Make an environment without packages."""
    python = folder / "bare" / "bin" / "python"
    if not python.exists():
        command = [sys.executable, "-m", "venv", "--without-pip", str(python.parents[1])]
        subprocess.run(command, check=True)
    return str(python)


def python_for_spark(folder: Path, *more: str) -> str:
    """Make an environment with PySpark's dependencies and `more`, as on machines of a cluster."""
    python = Path(bare_python(folder))
    here = Path(next(path for path in sys.path if path.endswith("site-packages")))
    (there,) = python.parents[1].glob("lib/python*/site-packages")
    for path in here.iterdir():
        if path.name.partition(".")[0] in (*OF_SPARK, *more):  # also numpy.libs
            (there / path.name).symlink_to(path)
    return str(python)
