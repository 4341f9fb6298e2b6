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

from beanstalkd_py.errors import PipelineUsageError

MISSING_PYSPARK = "the pipeline needs PySpark; pip install 'beanstalkd_py[spark]' installs it"


def archive_path() -> Path:
    """Return where the archive of the installed PySpark is, or would be.

    Raises PipelineUsageError without PySpark or a home folder.
    """
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        pyspark = importlib.metadata.distribution("pyspark")
    except RuntimeError as error:
        text = "no home folder for the archive; set HOME or XDG_CACHE_HOME"
        raise PipelineUsageError(text) from error
    except importlib.metadata.PackageNotFoundError as error:
        raise PipelineUsageError(MISSING_PYSPARK) from error
    folder = hashlib.sha256(str(pyspark.locate_file("")).encode()).hexdigest()[:8]
    return Path(caches, "beanstalkd-py", f"spark-{pyspark.version}-{folder}.jsa")


def option_of_java() -> str:
    """Return the option that uses the archive; "" if there is none."""
    try:
        archive = archive_path()
    except PipelineUsageError:
        return ""
    # Java would print on stdout, at each start, why it ignores an archive.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off' if archive.exists() else ""
