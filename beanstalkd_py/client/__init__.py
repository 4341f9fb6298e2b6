"""Clients of the protocol with its extensions.

    from beanstalkd_py.client import Client

    with Client(("127.0.0.1", 11300), use="mails") as client:
        client.put("to=ann")

`Client` is a greenstalk client with methods for the extensions, and `AsyncClient` its twin for
asyncio. They work on C beanstalkd, too, where these methods raise MissingFeatureError.
"""

from __future__ import annotations

from beanstalkd_py.client.asynchronous import AsyncClient
from beanstalkd_py.client.records import ListedJob, ListedState
from beanstalkd_py.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "ListedJob", "ListedState"]
