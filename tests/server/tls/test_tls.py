"""TLS: protocol, limits, certificates, reload, and the supervision of the process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cli.commands import USAGE, refusal, run
from processes import eventually
from server.tls.tls_servers import (
    HELLO,
    USING,
    Both,
    Files,
    ask,
    can_connect,
    known,
    read,
    serving,
    serving_with_ca,
    tls_processes,
)
from servers import Server, free_port, ours

from beanstalkd_py import errors
from beanstalkd_py.control.client import connect
from beanstalkd_py.server.accept.addresses import parse_host_port
from beanstalkd_py.server.accept.networks import source_of
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.tls import certificates
from beanstalkd_py.server.tls.certificates import (
    Certificates,
    read_certificates,
    read_certificates_again,
)
from beanstalkd_py.server.tls.handshakes import (
    IN_ALL,
    PER_SOURCE,
    ROUND_TRIP_S,
    SLOW_S,
    Handshake,
    Handshakes,
)


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
def workers(request: pytest.FixtureRequest) -> str:
    return f"--workers={request.param}"


@pytest.mark.costly
def test_a_dialogue_and_the_clients_address(files: Files, workers: str) -> None:
    with serving(files, workers) as both, both.connect() as client:
        assert client.version() in ("TLSv1.2", "TLSv1.3")
        assert ask(client, b"use t\r\n") == b"USING t\r\n"
        assert ask(client, b"put 0 0 9 3\r\nabc\r\n") == b"INSERTED 1\r\n"
        with both.server.connect() as plain:
            assert plain.ask(b"peek 1\r\n") == b"FOUND 1 3\r\nabc\r\n"
        host, port = client.getsockname()
        with connect(f"127.0.0.1:{both.server.port}") as control:
            shown = [row["from"] for row in control.parts("conns") if "from" in row]
        assert f"{host}:{port}" in shown
        client.sendall(b"quit\r\n")
        assert client.recv(10) == b""  # raises without close_notify


@pytest.mark.slow
def test_large_bodies_both_ways(files: Files) -> None:
    size = 4 << 20
    with serving(files, f"-z{size}") as both, both.connect() as client:
        body = os.urandom(1 << 20) * 4
        client.sendall(b"put 0 0 9 %d\r\n%b\r\n" % (size, body))
        assert client.recv(100) == b"INSERTED 1\r\n"
        client.sendall(b"peek 1\r\n" * 2)
        reply = b"FOUND 1 %d\r\n%b\r\n" % (size, body)
        assert read(client, 2 * len(reply)) == 2 * reply


@pytest.mark.slow
def test_a_half_closed_client_gets_all_replies(files: Files, workers: str) -> None:
    """TLS can be closed in one direction, like TCP."""
    count = 2000
    with serving(files, workers) as both:
        plain = socket.create_connection(("127.0.0.1", both.port), timeout=5)
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = files.context().wrap_bio(arrived, leaving, server_hostname="localhost")

        def until_done(step):  # type: ignore[no-untyped-def]
            while True:
                try:
                    done = step()
                except ssl.SSLWantReadError:
                    done = None
                plain.sendall(leaving.read())
                if done is not None:
                    return done
                data = plain.recv(1 << 16)
                if not data:
                    return b""
                arrived.write(data)

        with plain:
            until_done(lambda: client.do_handshake() or True)
            client.write(b"put 0 0 9 1\r\nx\r\n" * count)
            with contextlib.suppress(ssl.SSLWantReadError):
                client.unwrap()
            plain.sendall(leaving.read())
            got = b""
            with contextlib.suppress(ssl.SSLZeroReturnError):
                while data := until_done(lambda: client.read(1 << 16)):
                    got += data
        assert got.count(b"INSERTED") == count


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rudely", "at once"])
def test_the_jobs_of_a_lost_client_become_ready(files: Files, how: str) -> None:
    with serving(files) as both, both.server.connect() as other:
        client = both.connect()
        ask(client, b"put 0 0 9 1\r\nx\r\n")
        assert ask(client, b"reserve\r\n").startswith(b"RESERVED 1")
        other.send(b"reserve\r\n")
        if how == "at once":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()  # without close_notify
        assert other.reply().startswith(b"RESERVED 1")


@pytest.mark.costly
def test_tls_ca_requires_client_certificates(files: Files) -> None:
    with serving_with_ca(files) as both:
        with pytest.raises(OSError), both.connect() as stranger:
            assert ask(stranger, HELLO) == b""
            raise OSError
        other = files.context()
        trustme.CA().issue_cert("somebody").configure_cert(other)
        with pytest.raises(OSError), both.connect(other) as stranger:
            assert ask(stranger, HELLO) == b""
            raise OSError
        with both.connect(known(files)) as client:
            assert ask(client, HELLO) == USING
        assert eventually(lambda: "handshakes failed" in both.server.stderr())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_and_plain_text_are_refused(files: Files) -> None:
    with serving(files) as both:
        old = files.context()
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError):
            both.connect(old)
        with socket.create_connection(("127.0.0.1", both.port), timeout=5) as plain:
            plain.sendall(b"stats\r\n" * 10)
            with contextlib.suppress(ConnectionResetError):
                assert b"OK" not in plain.recv(1 << 16)
        assert can_connect(both)


@pytest.mark.slow
def test_limits_apply_to_tls(files: Files, workers: str) -> None:
    with serving(files, workers, "--max-connections=2", "--idle-timeout=1") as both:
        assert eventually(lambda: _open(both.server) == 0)
        with both.connect() as first, both.connect() as second:
            assert ask(first, HELLO) == ask(second, HELLO) == USING
            with pytest.raises(OSError):
                both.connect()
            assert first.recv(10) == b""  # idle timeout
            assert second.recv(10) == b""
        assert eventually(lambda: can_connect(both))


def _open(server: Server) -> int:
    with connect(f"127.0.0.1:{server.port}") as control:
        return sum(1 if "from" in row else row["silent"] for row in control.parts("conns"))


@pytest.mark.slow
def test_allow_applies_before_the_handshake(files: Files) -> None:
    port = free_port()
    arguments = (f"--tls-listen=127.0.0.1:{port}", *files.arguments)
    config = files.folder / "config"
    config.write_text("")
    with ours(*arguments, f"--config={config}") as server:
        both = Both(server, port, files)
        assert eventually(lambda: can_connect(both), 10)
        config.write_text('allow = "192.0.2.0/24"\n')
        server.signal(signal.SIGHUP)
        assert eventually(lambda: not can_connect(both))


@pytest.mark.costly
def test_a_reload_applies_valid_certificates_only(files: Files) -> None:
    def serial() -> object:
        with both.connect() as client:
            found = client.getpeercert()
            assert found
            return found["serialNumber"]

    with serving(files, "-V") as both, both.connect() as client:
        before = serial()
        files.renew()
        both.server.signal(signal.SIGHUP)
        assert eventually(lambda: serial() != before)
        now = serial()
        (files.folder / "cert.pem").write_text("nonsense")
        both.server.signal(signal.SIGHUP)
        assert eventually(lambda: "nothing has changed" in both.server.stderr())
        assert serial() == now
        assert ask(client, HELLO) == USING


def test_unreadable_files_do_not_stop_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user of -u may be unable to read root's key; other files must be readable."""

    def unreadable(options: ServeOptions) -> Certificates:
        raise errors.UnreadableError("option --tls-key: Permission denied")

    monkeypatch.setattr(certificates, "read_certificates", unreadable)
    options = ServeOptions(tls_listen="127.0.0.1:0", tls_cert="cert", tls_key="key")
    assert read_certificates_again(replace(options, max_memory=1), options) is None
    with pytest.raises(errors.UnreadableError):
        read_certificates_again(replace(options, tls_key="other"), options)


@pytest.mark.slow
def test_the_tls_process_is_restarted(files: Files) -> None:
    with serving(files) as both, both.server.connect() as plain, both.connect() as client:
        assert ask(client, HELLO) == USING
        (pid,) = tls_processes(both.server)
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            assert client.recv(10) == b""
        assert plain.ask(HELLO) == USING
        assert eventually(lambda: can_connect(both), 10)
        assert eventually(lambda: plain.stats()["current-connections"] == "1")


@pytest.mark.slow
def test_a_stop_sends_pending_replies(files: Files) -> None:
    with serving(files) as both:
        client = both.connect()
        client.sendall(b"put 0 0 9 1\r\nx\r\n" * 100)
        assert eventually(lambda: _total_jobs(both.server) == 100)
        assert both.server.stop() == 0
        with client:
            got = read(client, 1 << 20)
        assert got.count(b"INSERTED") == 100


def _total_jobs(server: Server) -> int:
    with server.connect() as client:
        return int(client.stats()["total-jobs"])


@pytest.mark.slow
def test_a_slow_reader_delays_no_others_and_takes_little_memory(files: Files) -> None:
    with serving(files, "-z1000000") as both, both.connect() as slow, both.connect() as quick:
        body = b"x" * 500_000
        slow.sendall(b"put 0 0 9 %d\r\n%b\r\n" % (len(body), body))
        assert slow.recv(100) == b"INSERTED 1\r\n"
        slow.sendall(b"peek 1\r\n" * 40)
        time.sleep(0.2)
        used_s = both.server.cpu_s()
        for _ in range(20):
            assert ask(quick, HELLO) == USING
        time.sleep(0.3)
        assert both.server.cpu_s() < used_s + 0.2  # no busy loop
        reply = b"FOUND 1 %d\r\n%b\r\n" % (len(body), body)
        assert read(slow, 40 * len(reply)) == 40 * reply


@pytest.mark.slow
def test_admin_commands(files: Files) -> None:
    with serving_with_ca(files) as both:
        with both.server.connect() as plain:
            plain.put()
        issued = files.ca.issue_cert("operator")
        issued.private_key_and_cert_chain_pem.write_to_path(str(files.folder / "us.pem"))
        words = ["stats", "--json", f"--addr=tls://localhost:{both.port}"]
        us, ca = f"--tls-cert={files.folder}/us.pem", f"--tls-ca={files.folder}/ca.pem"
        done = run(*words, ca, us)
        assert '"total-jobs": 1' in done.stdout, done
        done = run("top", "--json", "--count=1", words[2], ca, us)
        assert json.loads(done.stdout)["tubes"], done
        assert "does not support TLS" in refusal(2, "bench", "--yes", words[2], ca, us)
        for given, text in [
            ([us], "use --tls-ca FILE to name the CA"),
            ([ca], f"tls://localhost:{both.port}"),
            ([ca, f"{us}.no"], "No such file"),
        ]:
            done = run(*words, *given)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
            assert text in done.stderr


# --- invalid configurations ---------------------------------------------------------------------


@pytest.mark.costly
def test_missing_or_invalid_options_are_one_line_errors(files: Files) -> None:
    cert, key = files.arguments
    line = refusal(USAGE, "-p0", "--tls-listen=127.0.0.1:0", cert)
    assert "--tls-listen requires --tls-key FILE" in line
    line = refusal(USAGE, "-p0", "--tls-listen=127.0.0.1:0", cert, f"{key}.no", "-l127.0.0.1")
    assert "--tls-key" in line
    assert "No such file" in line
    line = refusal(USAGE, "-p0", "--tls-processes=2")
    assert "--tls-processes requires --tls-listen HOST:PORT" in line


def test_invalid_files(files: Files) -> None:
    folder = files.folder
    (folder / "other").mkdir()
    Files(folder / "other", files.ca)
    (folder / "nonsense").write_text("nonsense")
    _encrypt(folder / "key.pem", folder / "locked.pem")
    right = {"tls_cert": "cert.pem", "tls_key": "key.pem", "tls_ca": "ca.pem"}
    for wrong, text in [
        ({"tls_cert": "none"}, "--tls-cert: .*none: No such file"),
        ({"tls_cert": "nonsense"}, "--tls-cert"),
        ({"tls_key": "other/key.pem"}, "does not match the certificate"),
        ({"tls_key": "locked.pem"}, "encrypted"),
        ({"tls_ca": "nonsense"}, "--tls-ca"),
        ({"tls_key": None}, "--tls-key FILE"),
    ]:
        names = {k: v and str(folder / v) for k, v in (right | wrong).items()}
        with pytest.raises(errors.UsageError, match=text):
            read_certificates(ServeOptions(tls_listen="127.0.0.1:0", **names))
    names = {k: str(folder / v) for k, v in right.items()}
    read = read_certificates(ServeOptions(tls_listen="127.0.0.1:0", **names))
    fd = read.to_memory_file()
    assert Certificates.from_memory_file(fd) == read
    os.close(fd)


@pytest.mark.parametrize("text", ["nowhere", ":5", "5", "a:b", "::1:5", "a:65536", "", "unix:/a"])
def test_an_address_for_tls_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(errors.UsageError, match="HOST:PORT"):
        parse_host_port(text, "--tls-listen")
    assert str(parse_host_port("[::1]:5", "--tls-listen")) == "[::1]:5"
    assert str(parse_host_port("localhost:0", "--tls-listen")) == "localhost:0"


def _encrypt(key: Path, to: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form

    loaded = form.load_pem_private_key(key.read_bytes(), None)
    to.write_bytes(
        loaded.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"word")
        )
    )


# --- half-open handshakes -------------------------------------------------------------------------


@contextlib.contextmanager
def half_open(port: int, count: int, start: bytes = b"") -> Iterator[None]:
    """Open connections from 127.0.0.2 that begin a handshake, or not, and never continue."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.2", 0))
            one.settimeout(5)
            one.connect(("127.0.0.1", port))
            if start:
                one.sendall(start)
        yield


def client_hello(files: Files) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = files.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


# The server signs its reply to each hello, so 1,000 of them take it seconds on a busy machine.
@pytest.mark.costly
@pytest.mark.parametrize(
    ("sent", "count"),
    [
        pytest.param("nothing", 1000, marks=pytest.mark.slow),
        pytest.param("part of a hello", 1000, marks=pytest.mark.slow),
        ("a hello", 300),
    ],
)
def test_half_open_handshakes_delay_no_others(files: Files, sent: str, count: int) -> None:
    hello = client_hello(files)
    start = {"nothing": b"", "part of a hello": hello[:20], "a hello": hello}[sent]
    with serving(files) as both, half_open(both.port, count, start):
        began = time.monotonic()
        with both.connect() as client:
            assert ask(client, HELLO) == USING
        assert time.monotonic() - began < 2
        assert eventually(lambda: "handshakes aborted at the limit" in both.server.stderr())


def test_handshakes_are_aborted_per_source_and_in_total() -> None:
    handshakes = Handshakes()
    with contextlib.ExitStack() as stack:

        def begin(source: str, waits_since: float | None) -> Handshake:
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            handshake = handshakes.begin(ours, source)
            handshake.waits_since = waits_since
            return handshake

        old = [begin("a", number / 1000) for number in range(PER_SOURCE + 3)]
        young = begin("a", 10.0)
        at_work = begin("a", None)
        other = begin("b", 0.0)
        assert handshakes.abort_surplus(10.0 + ROUND_TRIP_S) == 3
        assert all(handshake.socket.recv(1) == b"" for handshake in old[:3])
        for handshake in (old[3], young, at_work, other):
            handshake.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                handshake.socket.recv(1)
        for handshake in [*old, young, at_work, other]:
            handshakes.end(handshake)
        for number in range(IN_ALL + 2):
            begin(str(number), 0.0)
        assert handshakes.abort_surplus(SLOW_S / 2) == 0
        assert handshakes.abort_surplus(SLOW_S + 1) == 2


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "20010db800000000"),
        ("fe80::1%lo", "fe80000000000000"),
    ],
)
def test_a_source_is_an_ipv4_address_or_an_ipv6_network(host: str, source: str) -> None:
    assert source_of(host) == source
