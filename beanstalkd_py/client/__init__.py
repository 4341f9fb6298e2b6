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
    "ReleaseJob",
    "Retry",
    "Started",
    "TooManyAttemptsError",
    "Worker",
    "log_event",
]

_MODULES = {
    "AsyncClient": "beanstalkd_py.client.asynchronous",
    "Backoff": "beanstalkd_py.client.worker.retry",
    "BatchJob": "beanstalkd_py.client.records",
    "BuryJob": "beanstalkd_py.client.worker.events",
    "Client": "beanstalkd_py.client.synchronous",
    "Connected": "beanstalkd_py.client.worker.events",
    "Delivery": "beanstalkd_py.client.worker.events",
    "Disconnected": "beanstalkd_py.client.worker.events",
    "Event": "beanstalkd_py.client.worker.events",
    "Finished": "beanstalkd_py.client.worker.events",
    "Hook": "beanstalkd_py.client.worker.events",
    "JobEnd": "beanstalkd_py.client.records",
    "ListedJob": "beanstalkd_py.client.records",
    "ListedState": "beanstalkd_py.client.records",
    "Outcome": "beanstalkd_py.client.worker.events",
    "ProcessEnded": "beanstalkd_py.client.worker.events",
    "ReleaseJob": "beanstalkd_py.client.worker.events",
    "Retry": "beanstalkd_py.client.worker.retry",
    "Started": "beanstalkd_py.client.worker.events",
    "TooManyAttemptsError": "beanstalkd_py.client.worker.events",
    "Worker": "beanstalkd_py.client.worker.worker",
    "log_event": "beanstalkd_py.client.worker.hooks",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
