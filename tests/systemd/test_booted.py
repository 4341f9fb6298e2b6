"""The units under a real systemd, as an administrator installs and uses them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from docs.documents import document
from processes import alive, children, eventually
from systemd.load import Load
from systemd.machine import PREFIX, UNITS, Machine

from beanstalkd_py.console.access.accounts import Role, account_line

SERVICE, SOCKET = "beanstalkd-py.service", "beanstalkd-py.socket"
SHIP, TIMER = "beanstalkd-py-ship.service", "beanstalkd-py-ship.timer"
DEBIAN = "beanstalkd.service"
EXPOSURE = 1.5
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PROMPT_S = 20.0
CONFIGURATION = "/etc/systemd/system"


@pytest.fixture
def system(machine: Machine) -> Iterator[Machine]:
    """The machine, without services, options and jobs of other tests."""
    yield machine
    machine.systemctl("stop", SOCKET, TIMER, "beanstalkd*.service", check=False)
    machine.run("sh", "-c", "rm -rf /etc/default/beanstalkd-py* /etc/beanstalkd-py.toml")
    machine.run("sh", "-c", f"rm -rf {CONFIGURATION}/beanstalkd*.d")
    machine.run("sh", "-c", "rm -rf /var/lib/beanstalkd-py* /var/lib/private/beanstalkd-py*")
    machine.run("sh", "-c", "rm -rf /var/lib/beanstalkd/*")
    machine.systemctl("daemon-reload")
    machine.systemctl("reset-failed")


def set_options(machine: Machine, text: str, name: str = "beanstalkd-py") -> None:
    machine.path(f"/etc/default/{name}").write_text(f'OPTIONS="{text}"\n')


def drop_in(machine: Machine, text: str, unit: str = SERVICE, name: str = "test.conf") -> None:
    folder = machine.path(f"{CONFIGURATION}/{unit}.d")
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    machine.systemctl("daemon-reload")


def exposure(machine: Machine, unit: str) -> float:
    text = machine.run("systemd-analyze", "security", "--no-pager", unit).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    assert found, text
    return float(found[1])


def start_debians(machine: Machine) -> None:
    """Start Debian's beanstalkd, whose unit is active before it listens."""
    machine.systemctl("start", DEBIAN)
    machine.wait_until_listening()


def status_of(machine: Machine, unit: str = SERVICE) -> str:
    return machine.show(unit, "StatusText")


# --- start and stop -------------------------------------------------------------------------------


def test_the_service_keeps_jobs_over_a_restart(system: Machine) -> None:
    system.systemctl("start", SERVICE)
    with system.connect() as client:
        job = client.put(b"kept")
    system.systemctl("restart", SERVICE)
    with system.connect() as client:
        assert client.ask(b"peek %d\r\n" % job) == b"FOUND %d 4\r\nkept\r\n" % job
    assert status_of(system).startswith("serving with ")
    assert system.systemctl("is-active", SERVICE) == "active"
    assert list(system.path("/var/lib/private/beanstalkd-py").iterdir())
    assert system.path("/var/lib/private/beanstalkd-py").stat().st_mode & 0o777 == 0o700


def test_an_instance_has_its_own_options_and_jobs(system: Machine) -> None:
    set_options(system, "-l 127.0.0.1 -p 11400 --workers 1", "beanstalkd-py-mail")
    system.systemctl("start", SERVICE, "beanstalkd-py@mail.service")
    with system.connect(11400) as second, system.connect() as plain:
        job = second.put(b"mail")
        assert plain.ask(b"peek %d\r\n" % job) == b"NOT_FOUND\r\n"
    system.systemctl("restart", "beanstalkd-py@mail.service")
    with system.connect(11400) as second:
        assert second.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")
    assert system.path("/var/lib/private/beanstalkd-py-mail/binlog.1").exists()
    assert system.show(SERVICE, "NRestarts") == "0"


def test_socket_activation_survives_a_restart_of_the_service(system: Machine) -> None:
    system.systemctl("start", SOCKET)
    assert system.systemctl("is-active", SERVICE, check=False) == "inactive"
    with system.connect() as client:
        job = client.put()
        system.systemctl("stop", SERVICE)
    with system.connect() as client:
        assert client.ask(b"peek %d\r\n" % job, PROMPT_S).startswith(b"FOUND ")
    assert "options -l and -p are ignored" not in system.journal("--unit", SERVICE)


def test_the_sandbox_is_in_force(system: Machine) -> None:
    set_options(system, "-p 11400", "beanstalkd-py-mail")
    system.systemctl("start", SERVICE, "beanstalkd-py@mail.service")
    for unit in (SERVICE, "beanstalkd-py@mail.service"):
        assert exposure(system, unit) <= EXPOSURE


def test_the_ready_line_is_in_the_journal_with_its_priority(system: Machine) -> None:
    set_options(system, "-f 50 --workers 2")
    system.systemctl("start", SERVICE)
    invocation = f"_SYSTEMD_INVOCATION_ID={system.show(SERVICE, 'InvocationID')}"
    lines = system.run("journalctl", "--output=json", invocation).stdout.splitlines()
    (line,) = [entry for line in lines if "ready: " in (entry := json.loads(line))["MESSAGE"]]
    assert line["PRIORITY"] == "5"
    assert line["MESSAGE"].endswith(
        "listening on 0.0.0.0:11300, binlog /var/lib/beanstalkd-py (synced every 50 ms),"
        " 2 workers, control socket /run/beanstalkd-py/beanstalkd-py-11300.sock"
    )


# --- changes while it runs ------------------------------------------------------------------------


def test_a_reload_applies_a_changed_option(system: Machine) -> None:
    configuration = system.path("/etc/beanstalkd-py.toml")
    configuration.write_text("max-job-size = 3\n")
    set_options(system, "--config /etc/beanstalkd-py.toml")
    system.systemctl("start", SERVICE)
    process = system.show(SERVICE, "MainPID")
    with system.connect() as client:
        assert client.ask(b"put 0 0 9 4\r\nlong\r\n") == b"JOB_TOO_BIG\r\n"
        configuration.write_text("max-job-size = 4\n")
        system.systemctl("reload", SERVICE)
        assert eventually(
            lambda: client.ask(b"put 0 0 9 4\r\nlong\r\n").startswith(b"INSERTED "), PROMPT_S
        )
    assert system.show(SERVICE, "MainPID") == process


@pytest.mark.parametrize("unit", [SERVICE, SOCKET])
def test_restarts_under_load_lose_nothing(system: Machine, unit: str) -> None:
    set_options(system, "--workers 2")
    system.systemctl("start", unit)
    with Load(system) as load:
        for _ in range(2):
            assert load.grows()
            system.systemctl("restart", SERVICE)
        assert load.grows()
    load.check()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_watchdog_restarts_a_stopped_server(system: Machine, workers: int) -> None:
    set_options(system, f"--workers {workers}")
    drop_in(system, "[Service]\nWatchdogSec=1\n")
    system.systemctl("start", SERVICE)
    with system.connect() as client:
        job = client.put(b"kept")
    stopped = system.main_pid(SERVICE)
    workers_of_it = children(stopped)
    os.kill(stopped, signal.SIGSTOP)
    assert eventually(lambda: system.show(SERVICE, "NRestarts") == "1", PROMPT_S)
    assert eventually(lambda: system.show(SERVICE, "ActiveState") == "active", PROMPT_S)
    assert not any(alive(pid) for pid in [stopped, *workers_of_it])
    with system.connect() as client:
        assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND ")


# --- history --------------------------------------------------------------------------------------


def test_the_archiver_works_in_the_unit(system: Machine) -> None:
    """The system call filter forbids it to lower its priority."""
    options = "--workers 2 --history /var/lib/beanstalkd-py.history --metrics 127.0.0.1:11380"
    set_options(system, options)
    system.systemctl("start", SERVICE)
    with system.connect() as client:
        for _ in range(3):
            job = client.put()
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"

    def history() -> dict[str, object]:
        done = system.run("beanstalkd-py", "history", "status", "--json", check=False)
        reported: dict[str, object] = json.loads(done.stdout)
        return reported

    assert eventually(lambda: history()["archived"] == 3, PROMPT_S), system.journal()
    reported = history()
    assert (reported["state"], reported["restarts"], reported["keeps-restarting"]) == (
        "serving",
        0,
        False,
    )
    ready = system.run("curl", "-sf", "http://127.0.0.1:11380/-/ready").stdout
    assert ready == "serving with 2 of 2 workers\n"
    stored = system.path("/var/lib/private/beanstalkd-py.history")
    owner = system.path("/var/lib/private/beanstalkd-py").stat().st_uid
    assert {path.stat().st_uid for path in stored.rglob("*")} == {owner}


def test_binlogs_are_shipped_beside_the_service(system: Machine) -> None:
    """As a user of the service, in its sandbox, by the timer; the archiver waits for it."""
    target = system.path("/srv/binlogs")
    system.run("mkdir", "-p", "-m", "777", "/srv/binlogs")
    system.path("/etc/default/beanstalkd-py-ship").write_text("TARGET=/srv/binlogs\n")
    drop_in(system, "[Service]\nReadWritePaths=/srv/binlogs\n", SHIP)
    set_options(system, "--workers 1 -s 20000 --history /var/lib/beanstalkd-py.history")
    system.systemctl("start", SERVICE)
    system.systemctl("start", SHIP)
    with system.connect() as client:
        for _ in range(200):
            client.ask(b"delete %d\r\n" % client.put(b"x" * 400))
    drop_in(system, "[Timer]\nOnActiveSec=1\n", TIMER)
    system.systemctl("start", TIMER)

    def shipped() -> list[Path]:
        return sorted(target.glob("*/binlog.*"))

    assert eventually(lambda: len(shipped()) > 4, PROMPT_S), system.journal("-u", SHIP)
    system.systemctl("stop", TIMER)
    numbers = sorted(int(path.suffix[1:]) for path in shipped())
    assert numbers == list(range(1, len(numbers) + 1))
    assert "copied " in system.journal("-u", SHIP)
    assert system.show(SHIP, "Result") == "success"
    assert exposure(system, SHIP) <= 2.5
    system.run("rm", "-rf", "/srv/binlogs")


def test_a_restarting_archiver_shows_in_all_reports(system: Machine) -> None:
    options = "--workers 1 --history /var/lib/beanstalkd-py.history --metrics 127.0.0.1:11380"
    set_options(system, options)
    system.systemctl("start", SERVICE)
    system.systemctl("stop", SERVICE)
    stored = system.path("/var/lib/private/beanstalkd-py.history")
    (stored / "lock").unlink()
    (stored / "lock").mkdir()
    system.systemctl("start", SERVICE)
    assert eventually(lambda: "archiver keeps restarting" in status_of(system), PROMPT_S)
    with system.connect() as client:
        client.put()  # the queue still works
    ready = system.run("curl", "-s", "-w", "%{http_code}", "http://127.0.0.1:11380/-/ready").stdout
    assert ready == "serving with 1 of 1 worker; archiver keeps restarting\n503"
    metrics = system.run("curl", "-s", "http://127.0.0.1:11380/metrics").stdout
    assert 'beanstalkd_component_keeps_restarting{component="archiver"} 1.0' in metrics
    assert 'beanstalkd_component_keeps_restarting{component="worker 0"} 0.0' in metrics
    restarts = re.search(r'component_restarts_total\{component="archiver"\} ([0-9.]+)', metrics)
    # It has ended three times, and the restart after the third end has a delay.
    assert restarts and float(restarts[1]) >= 2
    done = system.run("beanstalkd-py", "history", "status", check=False)
    assert done.returncode == 1
    assert re.search(r"archiver +\w+, keeps restarting\n", done.stdout)
    assert re.search(r"last error +failed: .*lock", done.stdout)


# --- TLS ------------------------------------------------------------------------------------------

TLS_CLIENT = """
import socket, ssl, sys
context = ssl.create_default_context(cafile="/etc/beanstalkd-py-ca.pem")
with socket.create_connection(("127.0.0.1", 11301), 10) as plain:
    with context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"put 0 0 60 1\\r\\nx\\r\\n")
        sys.stdout.write(client.recv(100).decode())
"""


def test_tls_with_unit_credentials(system: Machine) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(system.path("/etc/tls.pem")))
    authority.cert_pem.write_to_path(str(system.path("/etc/beanstalkd-py-ca.pem")))
    system.path("/etc/tls.pem").chmod(0o600)
    drop_in(system, "[Service]\nLoadCredential=tls.pem:/etc/tls.pem\n")
    file = f"/run/credentials/{SERVICE}/tls.pem"
    set_options(system, f"--tls-listen 127.0.0.1:11301 --tls-cert {file} --tls-key {file}")
    system.systemctl("start", SERVICE)
    reported = system.run(PREFIX / "bin/python", "-c", TLS_CLIENT).stdout
    assert reported.startswith("INSERTED ")


def test_the_console_as_documented(system: Machine) -> None:
    """With the drop-in and the options of docs/operations/console.md, in the unit's sandbox."""
    texts = [one.text for one in document("docs/operations/console.md").blocks]
    (section,) = (text for text in texts if text.startswith("[Service]"))
    (options,) = (text for text in texts if text.startswith("OPTIONS="))
    users = system.path("/etc/beanstalkd-py.console-users")
    users.write_text(account_line("ann", Role.ADMIN, "a long password") + "\n")
    users.chmod(0o600)
    drop_in(system, section)
    system.path("/etc/default/beanstalkd-py").write_text(options)
    system.systemctl("start", SERVICE)

    def ask(path: str, body: str = "") -> str:
        words = ["curl", "-s", "--max-time", "20", "-b", "/tmp/cookies", "-c", "/tmp/cookies"]
        if body:
            words += ["-H", "Sec-Fetch-Site: same-origin", "-d", body]
            words += ["-H", "Content-Type: application/json"]
        return system.run(*words, f"http://127.0.0.1:11381{path}", check=False).stdout

    assert '"login":true' in ask("/api/session")
    assert '"user":"ann"' in ask("/api/login", '{"user": "ann", "password": "a long password"}')
    put = ask("/api/s/0/operations", '{"kind": "put", "tube": "a", "body": "b"}')
    assert '"error":null' in put
    assert (
        '"action": "put"' in system.path("/var/log/private/beanstalkd-py/console.log").read_text()
    )
    assert json.loads(ask("/api/s/0/binlog"))
    assert '"connections":[' in ask("/api/s/0/connections")  # by the control socket
    assert '"findings":[' in ask("/api/s/0/doctor")
    assert "keeps restarting" not in status_of(system)
    system.run("sh", "-c", "rm -rf /var/log/private/beanstalkd-py /var/log/beanstalkd-py")


# --- usage errors and conflicts -------------------------------------------------------------------


@pytest.mark.parametrize(("options", "status"), [("--no-such-option", "5"), ("-b /nowhere", "10")])
def test_a_usage_error_is_not_retried(system: Machine, options: str, status: str) -> None:
    set_options(system, options)
    system.systemctl("start", SERVICE, check=False)
    assert system.show(SERVICE, "ActiveState") == "failed"
    assert system.show(SERVICE, "ExecMainStatus") == status
    assert system.show(SERVICE, "NRestarts") == "0"


def test_the_service_conflicts_with_debians(system: Machine) -> None:
    for unit, other in ((DEBIAN, SERVICE), (SERVICE, DEBIAN), (DEBIAN, SERVICE)):
        start_debians(system) if unit == DEBIAN else system.systemctl("start", unit)
        assert system.show(unit, "ActiveState") == "active"
        assert system.show(other, "ActiveState") != "active"
        with system.connect() as client:
            client.put()
    assert system.show(SERVICE, "NRestarts") == "0"


def test_the_socket_conflicts_with_debians(system: Machine) -> None:
    start_debians(system)
    system.systemctl("start", SOCKET)
    assert system.show(DEBIAN, "ActiveState") == "inactive"
    with system.connect() as client:
        client.put()
    assert system.show(SERVICE, "ActiveState") == "active"
    start_debians(system)
    assert [system.show(unit, "ActiveState") for unit in (DEBIAN, SOCKET, SERVICE)] == [
        *("active", "inactive", "inactive"),
    ]


# --- on the folder of Debian's beanstalkd ---------------------------------------------------------


def keep_debians_jobs(machine: Machine) -> None:
    machine.path("/etc/default/beanstalkd").write_text(
        "BEANSTALKD_LISTEN_ADDR=127.0.0.1\nBEANSTALKD_LISTEN_PORT=11300\n"
        'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd"\n'
    )


def check_jobs(machine: Machine, jobs: list[int]) -> None:
    """Check that all jobs exist, and put one more."""
    with machine.connect() as client:
        for job in jobs:
            assert client.ask(b"peek %d\r\n" % job).startswith(b"FOUND "), job
        jobs.append(client.put(b"body"))


HISTORY = "--history /var/lib/beanstalkd-py.history"


@pytest.mark.parametrize("options", ["", "--workers 2", HISTORY])
def test_debians_folder_is_taken_over_and_given_back(system: Machine, options: str) -> None:
    folder = system.path("/var/lib/beanstalkd")
    before = folder.stat()
    keep_debians_jobs(system)
    drop_in(system, (UNITS / "debian-folder.conf").read_text(), name="debian-folder.conf")
    jobs: list[int] = []

    def check() -> None:
        check_jobs(system, jobs)

    start_debians(system)
    check()
    if options:
        set_options(system, options)
    system.systemctl("start", SERVICE)
    check()
    system.systemctl("restart", SERVICE)
    check()
    assert exposure(system, SERVICE) <= EXPOSURE
    system.systemctl("stop", SERVICE)
    if "--workers" in options:
        system.run("beanstalkd-py", "binlog", "reshard", "--workers", "1", "/var/lib/beanstalkd")
    start_debians(system)
    check()
    assert system.show(DEBIAN, "ActiveState") == "active", system.journal()
    after = folder.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        *(before.st_uid, before.st_gid, before.st_mode),
    )
    assert {path.stat().st_uid for path in folder.iterdir()} == {before.st_uid}
    assert len(jobs) == 4


def test_a_start_as_root_and_then_as_the_owner(system: Machine) -> None:
    """Root, with and without -u, and Debian's beanstalkd take turns on one folder."""
    folder = system.path("/var/lib/beanstalkd")
    before = folder.stat()
    keep_debians_jobs(system)
    jobs: list[int] = []
    serve = (
        *("systemd-run", "--quiet", "--collect", "--unit=as-root", "--service-type=notify"),
        *("beanstalkd-py", "serve", "-b", "/var/lib/beanstalkd"),
    )
    for _ in range(2):
        for options in (["--workers=2"], ["-u", "beanstalkd", "--workers=2"]):
            system.run(*serve, *options)
            check_jobs(system, jobs)
            system.systemctl("stop", "as-root.service")
        system.run("beanstalkd-py", "binlog", "reshard", "--workers", "1", "/var/lib/beanstalkd")
        system.run(*serve, "-u", "beanstalkd", "--workers=1")
        check_jobs(system, jobs)
        system.systemctl("stop", "as-root.service")
        start_debians(system)
        check_jobs(system, jobs)
        system.systemctl("stop", DEBIAN)
    after = folder.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        *(before.st_uid, before.st_gid, before.st_mode),
    )
    assert {path.stat().st_uid for path in folder.iterdir()} == {before.st_uid}
