"""Our server, whose workers keep a history: what an archiver needs is in the binlog folder.

Started as `python keeping_history.py serve ...`. It is the parts of a server below the archiver, so
nothing takes the files that are handed over.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from beanstalkd_py.cli.main import main
from beanstalkd_py.server.process.launch import ChildProcess, start_worker
from beanstalkd_py.server.process.messages import WorkerConfig


def start_keeping(
    config: WorkerConfig, shared_fd: int, spawned: ChildProcess | None = None
) -> ChildProcess:
    """As start_worker."""
    return start_worker(replace(config, history=True), shared_fd, spawned)


if __name__ == "__main__":
    with mock.patch("beanstalkd_py.server.process.launch.start_worker", start_keeping):
        main()
