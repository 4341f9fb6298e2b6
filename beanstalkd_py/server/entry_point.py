"""Runs one of the server's other processes: `python -m ... MODULE CHANNEL CONNECTIONS SHARED`.

Must not know what the process is for.
"""

from __future__ import annotations

import gc
import importlib
import sys


def run() -> None:
    """Imports MODULE and runs its `main` with the other arguments."""
    # Collections during the imports take a tenth of their time and find nothing.
    gc.disable()
    module = importlib.import_module(sys.argv[1])
    from beanstalkd_py.server.process.child import run_and_exit

    gc.freeze()
    gc.enable()
    run_and_exit(module.main, sys.argv[2:])


if __name__ == "__main__":
    run()
