"""The archive of the classes of Spark, from which Java starts it faster.

`pipeline prepare` has Java write it (JEP 350). Java ignores an archive of another Java or Spark, or
of Spark in another folder. It neither writes nor uses one if the folder of Spark's configuration,
which is in the class path, has files.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path


def archive_path() -> Path:
    """Return where the archive of the installed PySpark is, or would be.

    Raises importlib.metadata.PackageNotFoundError without PySpark, RuntimeError without a home.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    pyspark = importlib.metadata.distribution("pyspark")
    folder = hashlib.sha256(str(pyspark.locate_file("")).encode()).hexdigest()[:8]
    return Path(caches, "beanstalkd-py", f"spark-{pyspark.version}-{folder}.jsa")


def option_of_java() -> str:
    """Return the option that uses the archive; "" if there is none."""
    try:
        archive = archive_path()
    except (importlib.metadata.PackageNotFoundError, RuntimeError):
        return ""
    # Java would print on stdout, at each start, why it ignores an archive.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off' if archive.exists() else ""
