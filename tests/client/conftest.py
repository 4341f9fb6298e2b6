"""Servers for clients: one worker, two workers, and C beanstalkd, which has no extensions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server, ours, reference

KINDS = ("workers-1", "workers-2", "beanstalkd")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of `server` on ours, and those of `any_server` on C beanstalkd, too."""
    for fixture, kinds in (("server", KINDS[:2]), ("any_server", KINDS)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, kinds, indirect=True, scope="module")


def _started(kind: str) -> Iterator[Server]:
    running = reference() if kind == "beanstalkd" else ours("--workers", kind[-1])
    with running as server:
        yield server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from _started(request.param)


@pytest.fixture(scope="module")
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from _started(request.param)


@pytest.fixture(scope="module")
def beanstalkd() -> Iterator[Server]:
    yield from _started("beanstalkd")


@pytest.fixture
def name(tube: bytes) -> str:
    """A unique tube name."""
    return tube.decode()
