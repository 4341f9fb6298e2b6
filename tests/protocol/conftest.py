"""The protocol is the same with several workers: servers of them, connections to any of them.

Every test that uses the `server` of its module runs with one, two and four workers. A connection
starts with a line that names no tube, so its worker is random, and may be another than that of the
test's tube.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server, ours
from wire import FENCE, FENCE_REPLY, Client, Connect

# The seconds in which most faults of several workers would show.
EVERYDAY_WITH_TWO = (
    *("test_jobs", "test_reserve", "test_tubes", "test_stats", "test_extensions", "test_wait"),
    *("test_reserve_abort", "test_reserve_batch", "test_with"),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "workers" not in metafunc.fixturenames:
        return
    everyday = metafunc.module.__name__.endswith(EVERYDAY_WITH_TWO)
    marks = {1: (), 2: () if everyday else (pytest.mark.slow,), 4: (pytest.mark.slow,)}
    counts = [pytest.param(count, marks=marks[count], id=f"workers-{count}") for count in marks]
    metafunc.parametrize("workers", counts, indirect=True, scope="module")


@pytest.fixture(scope="module")
def workers(request: pytest.FixtureRequest) -> int:
    """How many workers the server of the module has."""
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, workers: int) -> Iterator[Server]:
    """One server for the module, started with the module's SERVER_ARGS if it has any."""
    arguments = getattr(request.module, "SERVER_ARGS", ())
    # C beanstalkd, which TEST_SERVER_COMMAND may name, has no such option.
    several = ("--workers", str(workers)) if workers > 1 else ()
    with ours(*several, *arguments) as running:
        yield running


@pytest.fixture
def connect(server: Server, workers: int) -> Iterator[Connect]:
    """Opens connections to the module's server; all are closed after the test."""
    opened: list[Client] = []

    def open_one() -> Client:
        client = server.connect()
        opened.append(client)
        if workers > 1:
            assert client.ask(FENCE) == FENCE_REPLY
        return client

    yield open_one
    for client in opened:
        client.close()
