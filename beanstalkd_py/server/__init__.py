"""The server: a small parent that accepts connections, and workers that own the queue.

    from beanstalkd_py.server import ServeOptions, serve

    status = serve(ServeOptions(port=11300, binlog_dir="/var/lib/beanstalkd"))

Invariant: this package does not import the command line, the history readers or the pipeline.
Importing it loads neither of its exports, because every process of the server imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beanstalkd_py.lazy_imports import lazy_names

if TYPE_CHECKING:
    from beanstalkd_py.server.options import ServeOptions
    from beanstalkd_py.server.parent.start import serve

__all__ = ["ServeOptions", "serve"]

_MODULES = {"options": ["ServeOptions"], "parent.start": ["serve"]}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
