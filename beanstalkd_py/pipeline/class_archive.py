"""The archive of the classes of Spark, from which Java starts it faster.

`pipeline prepare` has Java write it (JEP 350). Java ignores an archive of another Java or Spark. It
neither writes nor uses one if the folder of Spark's configuration, which is in the class path, has
files.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path


def archive_path() -> Path:
    """Return where the archive of the installed PySpark is, or would be.

    Raises importlib.metadata.PackageNotFoundError without PySpark, RuntimeError without a home.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    version = importlib.metadata.version("pyspark")
    return Path(caches, "beanstalkd-py", f"spark-{version}.jsa")


def option_of_java() -> str:
    """Return the option that uses the archive; "" if there is none."""
    try:
        archive = archive_path()
    except (importlib.metadata.PackageNotFoundError, RuntimeError):
        return ""
    # Java would report an archive of another version at each start.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds=off' if archive.exists() else ""
