"""Two instances of the unit that replicate to a nats-server of the same machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from processes import eventually
from replication.servers.nats_cluster import nats_program
from systemd.machine import Machine, booted
from wire import Client, NoReplyError

NATS = "nats.service"
PORTS = {"one": 11401, "two": 11402}
ONE, TWO = (f"beanstalkd-py@{name}.service" for name in PORTS)
PROMPT_S = 20.0
LEASE_S = 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine")) as running:
        program = running.path("/usr/bin/nats-server")
        shutil.copy(nats_program(), program)
        running.path(f"/etc/systemd/system/{NATS}").write_text(
            "[Service]\nExecStart=/usr/bin/nats-server -c /etc/nats-server.conf\n"
        )
        running.path("/etc/nats-server.conf").write_text(
            "listen: 127.0.0.1:4222\njetstream { store_dir: /run/nats, sync_interval: always }\n"
        )
        running.systemctl("daemon-reload")
        yield running


@pytest.fixture
def system(machine: Machine) -> Iterator[Machine]:
    """The machine with nats-server, without streams, options and jobs of other tests."""
    machine.systemctl("start", NATS)
    for name, port in PORTS.items():
        set_options(machine, f"beanstalkd-py-{name}", port)
    yield machine
    machine.systemctl("stop", ONE, TWO, "beanstalkd-py.socket", "beanstalkd-py.service")
    machine.systemctl("stop", NATS)
    machine.run("sh", "-c", "rm -rf /run/nats /etc/default/beanstalkd-py*")
    machine.run("sh", "-c", "rm -rf /var/lib/beanstalkd-py* /var/lib/private/beanstalkd-py*")
    machine.systemctl("reset-failed")


def set_options(machine: Machine, name: str, port: int) -> None:
    # As docs/operations/replication.md shows it, without quotes.
    machine.path(f"/etc/default/{name}").write_text(
        "OPTIONS=--replicate nats://127.0.0.1:4222/jobs"
        f" --replicate-address 127.0.0.1:{port} --replicate-lease {LEASE_S}s"
        f" --replicate-copies 1 -l 127.0.0.1 -p {port} --workers 2\n"
    )


def status_is(machine: Machine, unit: str, text: str) -> bool:
    """Wait until `systemctl status` shows a status that begins like this."""
    shown = f'Status: "{text}'

    def is_shown() -> bool:
        return shown in machine.systemctl("status", "--lines=0", unit, check=False)

    return eventually(is_shown, PROMPT_S)


def serving(machine: Machine, unit: str) -> None:
    assert status_is(machine, unit, "serving with 2 of 2 workers"), machine.journal("-u", unit)


def standing_by(machine: Machine, unit: str, primary: str) -> None:
    """Check that a unit is active and shows the primary, by its name."""
    text = f"standing by for 127.0.0.1:{PORTS[primary]}"
    assert status_is(machine, unit, text), machine.journal("-u", unit)
    assert machine.show(unit, "ActiveState") == "active"


def start_both(machine: Machine) -> int:
    """Start the primary `one` and the standby `two`; return a job."""
    machine.systemctl("start", ONE)
    serving(machine, ONE)
    machine.systemctl("start", TWO)
    standing_by(machine, TWO, "one")
    with machine.connect(PORTS["two"]) as client:
        return client.put(b"kept")


def has_job(client: Client, job: int) -> bool:
    return client.ask(b"peek %d\r\n" % job, PROMPT_S) == b"FOUND %d 4\r\nkept\r\n" % job


def test_a_restart_of_the_primary_hands_over(system: Machine) -> None:
    job = start_both(system)
    system.systemctl("restart", ONE)
    standing_by(system, ONE, "two")
    serving(system, TWO)
    for port in PORTS.values():
        with system.connect(port) as client:
            assert has_job(client, job)
    assert [system.show(unit, "NRestarts") for unit in (ONE, TWO)] == ["0", "0"]
    files = system.path("/var/lib/private/beanstalkd-py-one")
    owner = files.stat().st_uid
    assert owner and {path.lstat().st_uid for path in files.rglob("*")} == {owner}
    assert (files / "replica.json").exists()


def test_a_primary_that_loses_its_lease_is_restarted_as_a_standby(system: Machine) -> None:
    job = start_both(system)
    system.systemctl("kill", "--kill-who=all", "--signal=STOP", ONE)
    serving(system, TWO)
    system.systemctl("kill", "--kill-who=all", "--signal=CONT", ONE)
    standing_by(system, ONE, "two")
    assert system.show(ONE, "NRestarts") == "1"
    with system.connect(PORTS["one"]) as client:
        assert has_job(client, job)


def test_a_primary_without_nats_is_restarted_until_there_is_one(system: Machine) -> None:
    system.systemctl("start", ONE)
    serving(system, ONE)
    with system.connect(PORTS["one"]) as client:
        job = client.put(b"kept")
    system.systemctl("stop", NATS)
    # The restart waits for NATS.
    waiting = "standing by; the replicated log is not available: NATS: "
    assert status_is(system, ONE, waiting), system.journal("-u", ONE)
    assert system.show(ONE, "ActiveState") == "activating"
    system.systemctl("start", NATS)
    serving(system, ONE)
    with system.connect(PORTS["one"]) as client:
        assert has_job(client, job)
    assert system.show(ONE, "NRestarts") == "1"


def test_socket_activation(system: Machine) -> None:
    """A server that becomes the primary closes the connections that waited for one."""
    set_options(system, "beanstalkd-py", 11300)
    system.systemctl("start", "beanstalkd-py.socket")
    found: list[int] = []

    def put() -> bool:
        with contextlib.suppress(OSError, NoReplyError), system.connect() as client:
            found.append(client.put(b"kept"))
        return bool(found)

    def peek() -> bool:
        with contextlib.suppress(OSError, NoReplyError), system.connect() as client:
            return has_job(client, found[0])
        return False

    assert eventually(put, PROMPT_S), system.journal()
    system.systemctl("stop", "beanstalkd-py.service")
    assert eventually(peek, PROMPT_S), system.journal()
