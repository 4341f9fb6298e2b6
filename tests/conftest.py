"""Fixtures for every test: a running server, connections to it, a tube name, a folder."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from object_store import BUCKET, object_store
from servers import Server, ours
from wire import Client, Connect, in_tube

from beanstalkd_py.pipeline.class_archive import option_of_java
from beanstalkd_py.pipeline.session import QUICK_JAVA

# No deadline per example, because examples wait for a server. No explain phase, because it runs a
# failing test hundreds of times.
_SETTINGS = settings(
    phases=[phase for phase in Phase if phase is not Phase.explain],
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("everyday", _SETTINGS, max_examples=50)
settings.register_profile("all", _SETTINGS, max_examples=100)
settings.register_profile("ci", _SETTINGS, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))

MEMORY = Path("/dev/shm")

_tube_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of control sockets. Killed servers do not remove theirs."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.delenv("RUNTIME_DIRECTORY", raising=False)
        patch.delenv("BEANSTALKD_CONTROL", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def spark_options() -> Iterator[None]:
    """Options of every Java process of Spark that tests start.

    Compiling all the way takes longer than what most tests run. Options are not in a folder of
    settings, because Java uses no archive of classes if a folder of its class path has files.
    Killed drivers leave temporary files, which are removed at the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="java-", ignore_cleanup_errors=True) as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        java = f"{QUICK_JAVA} -Djava.io.tmpdir={temporary} {option_of_java()}"
        options = java.replace('"', "")
        executors = f'-Dspark.executor.extraJavaOptions="{options}"'
        patch.setenv("SPARK_SUBMIT_OPTS", f"{options} {executors}")
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", options)
        yield


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URL of a bucket in an object store."""
    with object_store():
        yield f"s3://{BUCKET}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder on a file system where a sync costs nothing."""
    path = Path(
        tempfile.mkdtemp(prefix="beanstalkd-test-", dir=MEMORY if MEMORY.is_dir() else None)
    )
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """An empty folder that the user nobody owns and can reach, unlike those of `tmp_path`."""
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="beanstalkd-test-", dir="/tmp") as path:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
        yield Path(path)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server per module, started with the module's SERVER_ARGS if it has any."""
    with ours(*getattr(request.module, "SERVER_ARGS", ())) as running:
        yield running


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Return a function that connects to the module's server until the end of the test."""
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
    """A unique tube name."""
    return b"t%d" % next(_tube_numbers)


@pytest.fixture
def client(connect: Connect, tube: bytes) -> Client:
    """A connection that uses and watches only the test's tube."""
    return in_tube(connect(), tube)
