"""NATS with TLS and credentials: servers and commands use it, and refuse it with one line."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from processes import eventually
from replication.servers.nats_accounts import Accounts
from replication.servers.nats_cluster import (
    NatsCluster,
    NatsServer,
    answers,
    memory_folder,
    replicated_servers,
    single_nats,
    url_of,
)
from servers import free_port, our_command

from beanstalkd_py.replication.nats_connection import connect
from beanstalkd_py.replication.target import parse_target

PUT = b"put 0 0 100 4\r\nbody\r\n"
PROMPT_S = 20
VALID_S = 15


class Secured:
    """A nats-server with TLS and accounts, and the files of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority, accounts = trustme.CA(), Accounts()
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "nats.pem"))
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.accounts = accounts
        self.creds = accounts.write_user(folder / "user.creds")
        file = folder / "nats.pem"
        self.settings = f'tls {{ cert_file: "{file}", key_file: "{file}" }}\n{accounts.settings()}'

    def options(self, **others: Path) -> list[str]:
        """Return the options of `serve`."""
        files = {"creds": self.creds, "tls-ca": self.ca} | {
            name.replace("_", "-"): path for name, path in others.items()
        }
        names = [f"--replicate-{name}={path}" for name, path in files.items()]
        return ["--replicate-copies=1", *names]


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def secured(memory: Path) -> Secured:
    return Secured(memory)


@pytest.fixture(scope="module")
def nats(secured: Secured, memory: Path) -> Iterator[NatsCluster]:
    with single_nats(memory, secured.settings, "tls") as cluster:
        yield cluster


@pytest.fixture
def unsigned(tmp_path: Path) -> Path:
    """The file of a CA that has signed nothing."""
    path = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


def serve(target: str, folder: Path, *options: str) -> tuple[int, str]:
    """Return the exit status and the output of a server that cannot start."""
    folder.mkdir()
    words = ["-l", "127.0.0.1", "-p", str(free_port()), "-b", str(folder), "--replicate", target]
    return _ended([*our_command(), *words, *options])


def status(target: str, *options: str) -> tuple[int, str]:
    """Return the exit status and the output of `cluster status`."""
    return _ended([sys.executable, "-m", "beanstalkd_py", "cluster", "status", target, *options])


def _ended(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PROMPT_S,
        check=False,
    )
    return done.returncode, done.stdout


def check_refusals(
    nats: NatsCluster, folder: Path, secured: Secured, text: str, **files: Path
) -> None:
    """Check that a server and a command end with this error."""
    target = f"{nats.url}/refused"
    code, output = serve(target, folder / "refused", *secured.options(**files))
    assert (code, output.count("\n")) == (1, 1) and text in output, output
    chosen = {"creds": secured.creds, "tls_ca": secured.ca} | files
    words = [f"--{name.replace('_', '-')}={path}" for name, path in chosen.items()]
    code, output = status(target, *words)
    assert (code, output.count("\n")) == (2, 1) and text in output, output


@pytest.mark.costly
def test_a_standby_takes_over(nats: NatsCluster, secured: Secured, memory: Path) -> None:
    with replicated_servers(nats, "secured", memory, 2, *secured.options()) as (first, second):
        assert answers(first.port, PUT) == b"INSERTED 1\r\n"
        code, output = status(
            f"{nats.url}/secured", f"--creds={secured.creds}", f"--tls-ca={secured.ca}"
        )
        assert (code, output.splitlines()[0]) == (0, f"primary: 127.0.0.1:{first.port}"), output
        first.kill()
        assert answers(second.port, b"peek 1\r\n") == b"FOUND 1 4\r\nbody\r\n"


@pytest.mark.costly
def test_credentials_that_expire_end_the_server(
    nats: NatsCluster, secured: Secured, memory: Path, tmp_path: Path
) -> None:
    """nats-py does not reconnect with them, so the service manager's restart must."""
    creds = secured.accounts.write_user(tmp_path / "user.creds", VALID_S)
    options = secured.options(creds=creds)
    with replicated_servers(nats, "expired", memory, 1, *options) as (server,):
        assert answers(server.port, PUT) == b"INSERTED 1\r\n"
        assert eventually(lambda: server.running.exit_status is not None, VALID_S + PROMPT_S)
        server.kill()
        assert "NATS has closed the connection for good, as it does" in server.stderr()
        secured.accounts.write_user(creds)
        server.start()
        assert answers(server.port, b"peek 1\r\n") == b"FOUND 1 4\r\nbody\r\n"


def test_credentials_of_another_operator(
    nats: NatsCluster, secured: Secured, tmp_path: Path
) -> None:
    wrong = Accounts().write_user(tmp_path / "wrong.creds")
    text = "NATS refuses the credentials: Authorization Violation"
    check_refusals(nats, tmp_path, secured, text, creds=wrong)


@pytest.mark.parametrize("content", ["", "text\n", "-----BEGIN NATS USER JWT-----\na.b.c\n"])
def test_a_file_without_credentials(
    nats: NatsCluster, secured: Secured, tmp_path: Path, content: str
) -> None:
    wrong = tmp_path / "wrong.creds"
    wrong.write_text(content)
    check_refusals(nats, tmp_path, secured, f"{wrong} has no valid credentials", creds=wrong)


def test_a_damaged_seed(nats: NatsCluster, secured: Secured, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.creds"
    wrong.write_text(secured.creds.read_text().replace("\nSU", "\nSUA"))
    check_refusals(nats, tmp_path, secured, f"{wrong} has no valid credentials", creds=wrong)


def test_missing_credentials(nats: NatsCluster, secured: Secured) -> None:
    code, output = status(f"{nats.url}/refused", f"--tls-ca={secured.ca}")
    assert (code, output) == (
        2,
        "beanstalkd-py: NATS refuses the credentials: Authorization Violation\n",
    )


def test_a_certificate_of_another_ca(
    nats: NatsCluster, secured: Secured, unsigned: Path, tmp_path: Path
) -> None:
    text = "the certificate of NATS is not trusted: "
    check_refusals(nats, tmp_path, secured, text, tls_ca=unsigned)


def test_nats_without_tls_is_refused(secured: Secured, tmp_path: Path) -> None:
    """Whether tls:// requires it, or a CA does."""
    with single_nats(tmp_path) as plain:
        text = "beanstalkd-py: NATS does not require TLS, but the target or the CA does\n"
        url = plain.url.replace("nats:", "tls:")
        assert status(f"{url}/plain") == (2, text)
        assert status(f"{plain.url}/plain", f"--tls-ca={secured.ca}") == (2, text)


def test_nats_that_does_not_answer() -> None:
    code, output = status(f"nats://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/x")
    assert (code, output.count("\n")) == (2, 1) and "Connect call failed" in output


@pytest.mark.slow
def test_a_suspended_server_is_left_soon(
    nats: NatsCluster, secured: Secured, tmp_path: Path
) -> None:
    """The end of TLS needs its answer, for which asyncio waits 30 s."""
    (one,) = nats.servers

    async def reconnect(other: NatsServer) -> float:
        target = parse_target(f"{url_of([one.port, other.port], 'tls')}/x")
        client = await connect(target, str(secured.creds), str(secured.ca))
        first = one if client.connected_url.port == one.port else other
        first.signal(signal.SIGSTOP)
        begin = time.monotonic()
        try:
            while client.connected_url is None or client.connected_url.port == first.port:
                await asyncio.sleep(0.05)
        finally:
            first.signal(signal.SIGCONT)
        await client.close()
        return time.monotonic() - begin

    with single_nats(tmp_path, secured.settings, "tls") as second:
        assert asyncio.run(reconnect(second.servers[0])) < 12
