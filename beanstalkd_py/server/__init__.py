"""The server: a small parent that accepts connections, and workers that own the queue.

    from beanstalkd_py.server import ServeOptions, serve

    status = serve(ServeOptions(port=11300, binlog_dir="/var/lib/beanstalkd"))

Invariant: this package does not import the command line, the history readers or the pipeline.
Importing it loads neither of its exports, because every process of the server imports it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beanstalkd_py.server.options import ServeOptions
    from beanstalkd_py.server.parent.start import serve

__all__ = ["ServeOptions", "serve"]

_MODULES = {
    "ServeOptions": "beanstalkd_py.server.options",
    "serve": "beanstalkd_py.server.parent.start",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
