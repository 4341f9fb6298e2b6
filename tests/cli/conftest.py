"""Servers for commands that need the protocol only: each test runs on ours and on C beanstalkd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.operator import Operator
from servers import Server, ours, reference
from wire import Client, in_tube

STARTERS = {"ours": ours, "C": reference}


@pytest.fixture(scope="module", params=list(STARTERS))
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each kind, for a module."""
    with STARTERS[request.param]() as running:
        yield running


@pytest.fixture
def operator(either: Server) -> Operator:
    """Runs commands on that server."""
    return Operator(f"127.0.0.1:{either.port}")


@pytest.fixture
def wire(either: Server, tube: bytes) -> Iterator[Client]:
    """A connection that uses and watches the tube of the test alone."""
    with either.connect() as client:
        yield in_tube(client, tube)


@pytest.fixture
def name(tube: bytes) -> str:
    """The test's tube, as a command takes it."""
    return tube.decode()
