"""What every test may use: a running server, connections to it, and a tube of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from servers import Server, ours
from wire import Client, Connect, in_tube

# Waiting for a server is no fault of a test, so hypothesis must not time single examples.
# Nor does the explanation of a failure say enough for the hundreds of runs that it takes.
_SETTINGS = settings(
    phases=[phase for phase in Phase if phase is not Phase.explain],
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("everyday", _SETTINGS, max_examples=100)
settings.register_profile("ci", _SETTINGS, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))

_tube_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers put their control sockets: those that are killed leave them behind."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.delenv("RUNTIME_DIRECTORY", raising=False)
        patch.delenv("BEANSTALKD_CONTROL", raising=False)
        yield folder


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the module, started with the module's SERVER_ARGS if it has any."""
    with ours(*getattr(request.module, "SERVER_ARGS", ())) as running:
        yield running


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Opens connections to the module's server; all are closed after the test."""
    opened: list[Client] = []

    def open_one() -> Client:
        client = server.connect()
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def tube() -> bytes:
    """A tube name that no other test uses."""
    return b"t%d" % next(_tube_numbers)


@pytest.fixture
def client(connect: Connect, tube: bytes) -> Client:
    """A connection that uses and watches only the tube of this test."""
    return in_tube(connect(), tube)
