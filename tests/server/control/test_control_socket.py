"""The control socket: permissions, requests, invalid input and limits."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from processes import children, eventually
from servers import Server, free_port, our_command, ours
from shards import TWO, kill_worker, worker_pids
from wire import inserted_id

from beanstalkd_py import errors
from beanstalkd_py.control.client import ControlClient, connect
from beanstalkd_py.server.accept.addresses import UnixAddress
from beanstalkd_py.server.accept.listeners import Listener, bind
from beanstalkd_py.server.control import control_socket

pytestmark = pytest.mark.costly

BIND = 111
CONNECTIONS = 64  # the server's limit
PUT = b"put 0 0 60 1\r\nx\r\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with ours(*TWO, "-V") as running:
        yield running


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def socket_file(server: Server, folder: Path) -> Path:
    return folder / f"beanstalkd-py-{server.port}.sock"


def workers(server: Server) -> list[dict[str, Any]]:
    with connect(address(server)) as control:
        return list(control.parts("workers"))


def test_only_the_servers_user_may_open_it(server: Server, runtime_folder: Path) -> None:
    status = socket_file(server, runtime_folder).stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


def test_a_stop_removes_it(server: Server, runtime_folder: Path) -> None:
    assert server.stop() == 0
    assert not socket_file(server, runtime_folder).exists()
    with pytest.raises(errors.ControlError, match="is it running"):
        connect(address(server))


def test_rows_of_workers(server: Server) -> None:
    with server.connect() as client:
        for number in range(20):
            client.ask(b"use tube-%d\r\n" % number)
            inserted_id(client.ask(PUT))
        client.ask(b"pause-tube tube-1 1\r\n")
        rows = workers(server)
        assert [row["worker"] for row in rows] == [0, 1]
        assert [row["state"] for row in rows] == ["serving"] * 2
        assert [row["pid"] for row in rows] == worker_pids(server)
        assert sum(row["jobs-ready"] for row in rows) == 20
        assert sum(row["tubes"] for row in rows) == 21
        assert sum(row["connections"] for row in rows) == 1
        for row in rows:
            assert row["restarts"] == 0
            assert 0 < row["since-s"] < 60
            assert 0 <= row["cpu-s"] < 60
            assert 1 << 20 < row["memory-bytes"] < 1 << 30


def test_the_row_of_a_restarted_worker(server: Server) -> None:
    first, second = worker_pids(server)
    kill_worker(server, first)
    assert eventually(lambda: [row["state"] for row in workers(server)] == ["serving"] * 2, 10)
    rows = workers(server)
    assert [row["restarts"] for row in rows] == [1, 0]
    assert rows[0]["pid"] in set(children(server.pid)) - {first}
    assert rows[1]["pid"] == second
    assert rows[0]["since-s"] < rows[1]["since-s"]


def test_drain_on_and_off(server: Server) -> None:
    with connect(address(server)) as control, server.connect() as client:
        assert control.ask("drain") == {"draining": False}
        assert control.ask("drain", on=True) == {"draining": True}
        assert client.ask(PUT) == b"DRAINING\r\n"
        assert control.ask("drain") == {"draining": True}
        assert control.ask("drain", on=False) == {"draining": False}
        inserted_id(client.ask(PUT))
        with pytest.raises(errors.ControlError, match="give true or false"):
            control.ask("drain", on="yes")


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"stats\r\n",
        msgpack.packb([1, 2]),
        msgpack.packb({"do": "no such thing"}),
        msgpack.packb({"do": ["workers"]}),
        msgpack.packb({}),
        msgpack.packb({"do": "x" * (1 << 17)}),
    ],
    ids=["no msgpack", "protocol", "a list", "unknown", "no name", "nothing", "too long"],
)
def test_invalid_requests_get_an_error(server: Server, runtime_folder: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(5)
        raw.connect(str(socket_file(server, runtime_folder)))
        raw.sendall(data)
        answer = msgpack.unpackb(raw.recv(1 << 16))
        assert list(answer) == ["error"]
    assert len(workers(server)) == 2


def test_a_client_that_does_not_read_delays_no_other_client(
    server: Server, runtime_folder: Path
) -> None:
    request = msgpack.packb({"do": "workers"})
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(socket_file(server, runtime_folder)))
        raw.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                raw.send(request * 100)
        assert len(workers(server)) == 2


def test_connections_beyond_the_limit_wait(server: Server, runtime_folder: Path) -> None:
    path = socket_file(server, runtime_folder)
    idle = [ControlClient(path) for _ in range(CONNECTIONS)]
    with (
        ControlClient(path, timeout_s=0.3) as late,
        pytest.raises(errors.ControlError, match="no answer"),
    ):
        late.ask("drain")
    idle.pop().close()
    assert len(workers(server)) == 2
    for one in idle:
        one.close()


def test_the_socket_of_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control"
    with ours("--control", path) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        assert eventually(lambda: killed.exit_status is not None)
    assert path.is_socket()
    with pytest.raises(errors.ControlError, match="cannot reach"):
        ControlClient(path)
    with ours("--control", path), ControlClient(path) as control:
        assert control.ask("drain") == {"draining": False}


def test_a_path_in_use(tmp_path: Path) -> None:
    """A start fails for a given path in use, but not for the default path."""
    path = tmp_path / "control"
    with ours("--control", path) as first:
        port = free_port()
        command = [*our_command(), "-l", "127.0.0.1", "-p", str(port), "--control", str(path)]
        refused = Server(command, port, {})
        assert eventually(lambda: refused.exit_status is not None, 10)
        assert refused.exit_status == BIND
        assert eventually(lambda: "another server listens there" in refused.stderr())
        refused.kill()
        with first.connect() as client:
            inserted_id(client.ask(PUT))


def test_control_none(runtime_folder: Path) -> None:
    with ours("--control", "none") as server:
        assert not socket_file(server, runtime_folder).exists()
        with server.connect() as client:
            inserted_id(client.ask(PUT))


def test_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    place = f"unix:{tmp_path / 'jobs'}"
    command = [*our_command(), "-l", place, "-V"]
    server = Server(command, 0, {})
    try:
        assert eventually(lambda: "is ready" in server.stderr(), 10)
        with connect(place) as control:
            assert control.ask("drain") == {"draining": False}
    finally:
        server.stop()


STRANGE: list[Any] = [
    *(None, True, -1, 2**63, 1.5, float("nan"), float("inf"), "", "ready", "\0" * 300, b"ready"),
    *([], [[]], [{}], [None], ["ready", []], [["ready"]], {}, {"a": []}, {"ready": "ready"}),
    [{"tube": []}, b"\xff"],
]
ARGUMENTS = {
    "drain": ["on"],
    "compact": ["ratio"],
    "truncate": ["tube", "states"],
    "policy-set": ["policy"],
    "policy-unset": ["pattern"],
}
REQUESTS = [
    *(
        "workers",
        "drain",
        "reload",
        "compact",
        "conns",
        "truncate",
        "tubes",
        "history",
        "replication",
        "no",
    ),
    *("policies", "policy-set", "policy-unset"),
]


@pytest.mark.parametrize("request_name", REQUESTS)
def test_every_request_gets_a_reply(server: Server, request_name: str) -> None:
    """The reply is a result or an error; if the connection just ends, the handler has crashed."""
    names = ARGUMENTS.get(request_name, ["tube"])
    asked = [dict.fromkeys(names, value) for value in STRANGE]
    if request_name == "truncate":
        asked += [{"tube": "default", "states": value} for value in STRANGE]
        asked += [{"tube": value, "states": ["ready"]} for value in STRANGE]
    if request_name == "policy-set":
        fields = ("pattern", "max-jobs", "then", "rate", "release-backoff", "expires", "no")
        asked += [{"policy": {"pattern": "*", name: value}} for name in fields for value in STRANGE]
    with connect(address(server)) as control:
        for arguments in asked:
            try:
                list(control.parts(request_name, **arguments))
            except errors.ControlError as error:
                assert "the control socket" not in str(error), (arguments, error)
        assert control.ask("drain", on=False) == {"draining": False}


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_file_that_replaces_the_socket_keeps_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, str], None]
) -> None:
    """The folder's owner replaces it before root changes the socket's owner to the user of -u."""
    victim = tmp_path / "victim"
    victim.touch()

    def replaced(address: UnixAddress) -> Listener:
        listener = bind(address)
        os.unlink(address.path)  # noqa: PTH108
        make(victim, address.path)
        return listener

    user = pwd.getpwnam("nobody")
    path = tmp_path / "control"
    serves_on = Listener(socket.create_server(("127.0.0.1", 0)))
    try:
        listener = control_socket.open_control(str(path), serves_on, user)
        assert isinstance(listener, Listener)
        assert path.stat().st_uid == user.pw_uid
        listener.close()
        monkeypatch.setattr(control_socket, "bind", replaced)
        with pytest.raises(errors.AddressError, match="another user has replaced it"):
            control_socket.open_control(str(path), serves_on, user)
    finally:
        serves_on.close()
    assert victim.stat().st_uid == os.geteuid()
