"""Calls that would keep gevent's loop from other requests, in threads of the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gevent.threadpool import ThreadPool

T = TypeVar("T")


def call_in_thread(threads: ThreadPool, function: Callable[[], T]) -> T:
    """Call a function in a thread; return its result, or raise its error."""
    results: list[T] = []
    error = threads.apply(error_of, (lambda: results.append(function()),))
    if error is not None:
        raise error
    return results[0]


def error_of(function: Callable[[], object]) -> Exception | None:
    """Call a function and return its error, because gevent would print that of a thread."""
    try:
        function()
    except Exception as error:
        return error
    return None
