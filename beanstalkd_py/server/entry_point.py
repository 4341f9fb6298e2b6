"""Entry point of child processes: `python -m ... MODULE CHANNEL CONNECTIONS SHARED`."""

from __future__ import annotations

import gc
import importlib
import os
import sys


def run() -> None:
    """Run `main` of MODULE with three descriptors, and exit with its status."""
    # Collections during the imports take a tenth of their time and find nothing.
    gc.disable()
    module = importlib.import_module(sys.argv[1])
    from beanstalkd_py.server.logging.setup import flush_log
    from beanstalkd_py.server.process.exit_status import EXIT_ERROR

    gc.freeze()
    gc.enable()
    status = EXIT_ERROR
    try:
        status = module.main(sys.argv[2:])
    finally:
        # Skip the interpreter's cleanup, because the next server waits for this process to end.
        flush_log()
        sys.stderr.flush()
        if sys.exc_info()[0] is None:
            os._exit(status)


if __name__ == "__main__":
    run()
