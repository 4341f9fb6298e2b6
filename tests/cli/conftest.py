"""Fixtures for commands that use only the protocol: tests run on ours and on C beanstalkd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli.operator import Operator
from servers import Server, ours, reference
from wire import Client, in_tube

STARTERS = {"ours": ours, "C": reference}


@pytest.fixture(scope="module", params=list(STARTERS))
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server of each kind, one per module."""
    with STARTERS[request.param]() as running:
        yield running


@pytest.fixture
def operator(either: Server) -> Operator:
    return Operator(f"127.0.0.1:{either.port}")


@pytest.fixture
def wire(either: Server, tube: bytes) -> Iterator[Client]:
    """Yield a connection that uses and watches only the test's tube."""
    with either.connect() as client:
        yield in_tube(client, tube)


@pytest.fixture
def name(tube: bytes) -> str:
    return tube.decode()
