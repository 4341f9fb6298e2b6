"""Clients of the protocol with its extensions.

    from beanstalkd_py.client import Client

    with Client(("127.0.0.1", 11300), use="mails") as client:
        client.put("to=ann")

`Client` is a greenstalk client with methods for the extensions, and `AsyncClient` its twin for
asyncio. They work on C beanstalkd, too, where these methods raise MissingFeatureError. `Worker`
runs handlers for the jobs of tubes.

A name is imported on its first use, because asyncio and multiprocessing take most of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beanstalkd_py.lazy_imports import lazy_names

if TYPE_CHECKING:
    from beanstalkd_py.client.asynchronous import AsyncClient
    from beanstalkd_py.client.records import BatchJob, JobEnd, ListedJob, ListedState
    from beanstalkd_py.client.synchronous import Client
    from beanstalkd_py.client.worker.events import (
        BuryJob,
        Connected,
        Delivery,
        Disconnected,
        Event,
        Finished,
        Hook,
        Outcome,
        ProcessEnded,
        ProcessNotStarted,
        ReleaseJob,
        Started,
        TooManyAttemptsError,
    )
    from beanstalkd_py.client.worker.hooks import log_event
    from beanstalkd_py.client.worker.retry import Backoff, Retry
    from beanstalkd_py.client.worker.worker import Worker

__all__ = [
    "AsyncClient",
    "Backoff",
    "BatchJob",
    "BuryJob",
    "Client",
    "Connected",
    "Delivery",
    "Disconnected",
    "Event",
    "Finished",
    "Hook",
    "JobEnd",
    "ListedJob",
    "ListedState",
    "Outcome",
    "ProcessEnded",
    "ProcessNotStarted",
    "ReleaseJob",
    "Retry",
    "Started",
    "TooManyAttemptsError",
    "Worker",
    "log_event",
]

_MODULES = {
    "asynchronous": ["AsyncClient"],
    "records": ["BatchJob", "JobEnd", "ListedJob", "ListedState"],
    "synchronous": ["Client"],
    "worker.events": [
        *("BuryJob", "Connected", "Delivery", "Disconnected", "Event", "Finished", "Hook"),
        *("Outcome", "ProcessEnded", "ProcessNotStarted", "ReleaseJob", "Started"),
        "TooManyAttemptsError",
    ],
    "worker.hooks": ["log_event"],
    "worker.retry": ["Backoff", "Retry"],
    "worker.worker": ["Worker"],
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
