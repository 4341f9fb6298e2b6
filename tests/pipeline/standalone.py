"""A standalone cluster of Spark on loopback, with machines that lack folders of the driver."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from processes import eventually
from servers import free_port

START_S = 180
MEMORY = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
# A mount namespace with an empty file system on each folder.
HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'


@contextmanager
def standalone(folder: Path, workers: Sequence[Sequence[Path]]) -> Iterator[str]:
    """Start a master and workers of one core, each without some folders; return the master's URL.

    Only root can hide folders.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(
            _process("master.Master", log, "--host", "127.0.0.1", "--port", port, "--webui-port", 0)
        )
        assert eventually(lambda: "New state: ALIVE" in log.read_text(), START_S), log.read_text()
        for number, hidden in enumerate(workers):
            words = ["--host", "127.0.0.1", "--webui-port", 0, "--cores", 1, "--memory", "1g"]
            words += ["--work-dir", folder / f"work-{number}", url]
            output = folder / f"worker-{number}.log"
            running.enter_context(_process("worker.Worker", output, *words, hidden=hidden))
        assert eventually(
            lambda: log.read_text().count("Registering worker") == len(workers), START_S
        ), log.read_text()
        yield url


@contextmanager
def _process(name: str, log: Path, *words: object, hidden: Sequence[Path] = ()) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words]
    if hidden:
        command = ["unshare", "--mount", "sh", "-ec", HIDE, "hide", *hidden, "--", *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={**os.environ, **MEMORY, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # executors, too
        process.wait()
