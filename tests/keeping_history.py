"""Our server with workers that keep a history, but without an archiver.

Usage: `python keeping_history.py serve ...`. Done files stay in the binlog folder.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from beanstalkd_py.cli.main import main
from beanstalkd_py.server.process.launch import ChildProcess, start_process
from beanstalkd_py.server.process.messages import ProcessConfig


def start_keeping(
    module: str, config: ProcessConfig, shared_fd: int, spawned: ChildProcess | None = None
) -> ChildProcess:
    options = replace(config.options, history="")
    return start_process(module, replace(config, options=options), shared_fd, spawned)


if __name__ == "__main__":
    with mock.patch("beanstalkd_py.server.process.launch.start_process", start_keeping):
        main()
