"""The metrics server: formats, health and readiness, limits, misbehaving clients."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import gevent.event
import gevent.socket
import pytest
import trustme
from cli.commands import BIND, USAGE, refusal
from processes import children, eventually
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from server.metrics.scrape import Metrics, Watched, watched
from servers import free_port, ours
from wire import inserted_id

from beanstalkd_py.server.accept.addresses import InetAddress
from beanstalkd_py.server.accept.listeners import bind
from beanstalkd_py.server.metrics import http_server
from beanstalkd_py.server.metrics.http_server import MAX_CACHE_S, PER_SOURCE, MetricsServer
from beanstalkd_py.server.process.supervision import EARLY_EXITS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PUT = b"put 0 0 60 1\r\nx\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Watched]:
    with watched("--workers=2") as running:
        yield running


def test_promtool_accepts_the_page(server: Watched) -> None:
    """Both its format and its names."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=server.get("/metrics").body,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_openmetrics_on_request(server: Watched) -> None:
    plain, other = server.get("/metrics"), server.get("/metrics", Accept=OPENMETRICS)
    assert plain.kind.startswith("text/plain; version=0.0.4")
    assert other.kind.startswith("application/openmetrics-text; version=1.0.0")
    assert other.text.endswith("\n# EOF\n") and other.text.count("# EOF") == 1
    found = {
        sample.name for f in text_string_to_metric_families(other.text) for sample in f.samples
    }
    assert found == Metrics(plain.text).names


def test_health_and_other_paths(server: Watched) -> None:
    healthy = server.get("/-/healthy")
    assert (healthy.status, healthy.body) == (200, b"healthy\n")
    ready = server.get("/-/ready")
    assert (ready.status, ready.body) == (200, b"serving with 2 of 2 workers\n")
    assert b'href="/metrics"' in server.get("/").body
    assert server.get("/nothing").status == 404
    assert server.get("/metrics", "POST").status == 405
    head = server.get("/metrics", "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_many_requests_on_one_connection(server: Watched) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        stream = raw.makefile("rb")
        for _ in range(3):
            raw.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
            while stream.readline() != b"\r\n":
                pass
            assert stream.read(len(b"healthy\n")) == b"healthy\n"


@pytest.mark.costly
def test_a_draining_server_is_ready() -> None:
    with watched("--workers=1") as server:
        os.kill(server.server.pid, signal.SIGUSR1)
        assert eventually(lambda: server.scrape().sum("beanstalkd_draining") == 1)
        ready = server.get("/-/ready")
        assert (ready.status, ready.body) == (200, b"draining with 1 of 1 worker\n")


@pytest.mark.costly
def test_not_ready_while_a_worker_restarts() -> None:
    """The next process is stopped before it can serve, so that the state lasts."""
    with watched("--workers=2") as server:
        first = children(server.server.pid)[0]
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: server.get("/-/ready").status == 503)
        answer = server.get("/-/ready")
        if answer.status == 503:
            assert answer.body == b"serving with 1 of 2 workers; 1 restarting\n"
        assert eventually(lambda: server.get("/-/ready").status == 200, 10)
        metrics = server.scrape()
        assert metrics.sum("beanstalkd_worker_restarts_total", worker="0") == 1
        assert metrics.sum("beanstalkd_worker_restarts_total", worker="1") == 0


def processes_of(server: Watched, name: str) -> list[int]:
    """Return the processes of a component; the first worker is worker 0 at the start."""
    modules = {"worker 0": "server.worker", "TLS": "server.tls", "archiver": "server.archiver"}
    commands = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(server.server.pid)
    }
    return [pid for pid, command in commands.items() if modules[name].encode() in command]


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    ["worker 0", *(pytest.param(name, marks=pytest.mark.slow) for name in ("TLS", "archiver"))],
)
def test_not_ready_while_a_component_keeps_restarting(tmp_path: Path, name: str) -> None:
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    files = [f"--tls-{part}={tmp_path}/both.pem" for part in ("cert", "key")]
    (tmp_path / "binlog").mkdir()
    folders = (f"-b{tmp_path}/binlog", f"--history={tmp_path}/history")
    with watched("-V", "--workers=2", "--tls-listen=127.0.0.1:0", *files, *folders) as server:
        for text in ("TLS is ready", "the archiver is ready"):
            assert eventually(lambda text=text: text in server.server.stderr(), 10)
        (next_pid, *others) = processes_of(server, name)
        for count in range(1, EARLY_EXITS + 1):
            assert server.get("/-/ready").status == 200
            os.kill(next_pid, signal.SIGKILL)
            assert eventually(lambda count=count: restarts(server, name) == count, 10)
            assert eventually(lambda: len(processes_of(server, name)) == 1 + len(others), 10)
            (next_pid,) = set(processes_of(server, name)) - set(others)
            if count < EARLY_EXITS:
                assert eventually(lambda: server.get("/-/ready").status == 200, 10)
        text = f"serving with 2 of 2 workers; {name} keeps restarting\n".encode()
        assert eventually(lambda: server.get("/-/ready").body == text, 10)
        assert server.get("/-/ready").status == 503
        metrics = server.scrape()
        failing = {
            labels["component"]
            for labels, value in metrics.all("beanstalkd_component_keeps_restarting")
            if value
        }
        assert failing == {name}
        assert metrics.labels("beanstalkd_component_restarts_total", "component") == {
            *("worker 0", "worker 1", "TLS", "archiver"),
        }


def restarts(server: Watched, name: str) -> float:
    return server.scrape().sum("beanstalkd_component_restarts_total", component=name)


@pytest.mark.slow
def test_a_hung_worker_is_missing(server: Watched) -> None:
    """Its tubes are missing, and a metric reports that; all other metrics are complete."""
    first = children(server.server.pid)[0]
    assert eventually(lambda: server.scrape().sum("beanstalkd_worker_tubes_known") == 2)
    os.kill(first, signal.SIGSTOP)
    try:
        assert eventually(
            lambda: (
                server.scrape().all("beanstalkd_worker_tubes_known")
                == [({"worker": "0"}, 0), ({"worker": "1"}, 1)]
            ),
            15,
        )
        assert server.scrape().sum("beanstalkd_commands_total") >= 0
    finally:
        os.kill(first, signal.SIGCONT)


# --- misbehaving clients ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 1_000_000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", b"400"),
        (b"\x00\xff\xfe\r\n\r\n", b"400"),
    ],
    ids=["no http", "its version", "a long path", "a long header", "many headers", "no text"],
)
def test_invalid_requests_are_rejected(
    server: Watched, request_bytes: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        try:
            raw.sendall(request_bytes)
            first = raw.makefile("rb").readline()
        except ConnectionError:
            first = b""  # closed with unread bytes
        assert first == b"" or first.split()[1] == status
    assert server.get("/-/healthy").status == 200


def test_the_server_does_not_wait_for_an_endless_body(server: Watched) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 405")
    assert server.get("/-/healthy").status == 200


@pytest.mark.slow
def test_clients_that_do_not_read_delay_no_others() -> None:
    """Clients of the queue are served; scrapers wait only at the connection limit."""
    with watched("--workers=1") as server:
        stuck = []
        for _ in range(PER_SOURCE - 1):
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            raw.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
            stuck.append(raw)
        with server.server.connect() as client:
            inserted_id(client.ask(PUT))
            assert eventually(lambda: ready(server) == 1, MAX_CACHE_S + 5)
            stuck.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            inserted_id(client.ask(PUT))
        for raw in stuck:
            raw.close()
        assert eventually(lambda: ready(server) == 2, MAX_CACHE_S + 5)


def ready(server: Watched) -> float:
    return server.scrape().sum("beanstalkd_jobs", state="ready")


def test_an_expensive_page_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cheap page is never cached."""
    made: list[int] = []

    def collect() -> Iterator[Metric]:
        made.append(1)
        yield GaugeMetricFamily("made", "x", len(made))

    pages = http_server._Pages(collect)
    assert [pages.page("")[1].split()[-1] for _ in range(3)] == [b"1.0", b"2.0", b"3.0"]
    monkeypatch.setattr(http_server, "SLOW_PAGE_S", 0.0)
    monkeypatch.setattr(http_server, "CACHE_FACTOR", 1e9)
    monkeypatch.setattr(http_server, "MAX_CACHE_S", 0.2)
    assert {pages.page("")[1].split()[-1] for _ in range(3)} == {b"4.0"}
    time.sleep(0.25)
    assert pages.page("")[1].split()[-1] == b"5.0"


@pytest.mark.parametrize("how", ["half a request", "nothing", "nothing read"])
def test_a_slow_client_is_closed_at_the_limit(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """At the connection limit the next client waits only for the request timeout."""
    for limit in ("REQUEST_LIMIT_S", "RESPONSE_LIMIT_S"):
        monkeypatch.setattr(http_server, limit, 0.3)
    much = [GaugeMetricFamily(f"m{number}", "x" * 1_000_000, 1) for number in range(20)]
    listener = bind(InetAddress("127.0.0.1", 0))
    address = listener.socket.getsockname()
    server = MetricsServer(listener, lambda: much, lambda: (True, "serving"))
    server.start()
    reported = {
        "half a request": b"GET /metr",
        "nothing": b"",
        "nothing read": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    slow = []
    for _ in range(PER_SOURCE if how != "nothing read" else 2):
        one = gevent.socket.create_connection(address)
        one.sendall(reported[how])
        slow.append(one)
    with gevent.Timeout(20):
        last = gevent.socket.create_connection(address)
        last.sendall(b"GET /-/ready HTTP/1.0\r\n\r\n")
        assert last.recv(12) == b"HTTP/1.1 200"
        while len(server._pool):
            gevent.sleep(0.01)
    server.close()
    for one in [*slow, last]:
        one.close()


@pytest.mark.costly
@pytest.mark.parametrize(
    "sent",
    [b"GET /metr", b"GET / HTTP/1.1\r\nHost: ", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20],
)
@pytest.mark.parametrize("source", ["127.0.0.1", pytest.param("127.0.0.2", marks=pytest.mark.slow)])
def test_slow_clients_do_not_delay_health_checks(sent: bytes, source: str) -> None:
    """Neither from the same address nor from others."""
    with watched("--workers=1") as server, contextlib.ExitStack() as stack:
        for _ in range(300):
            slow = stack.enter_context(socket.socket())
            slow.bind((source, 0))
            slow.settimeout(10)
            slow.connect(("127.0.0.1", server.port))
            slow.sendall(sent)
        for path in ("/-/healthy", "/-/ready"):
            began = time.monotonic()
            assert server.get(path).status == 200
            assert time.monotonic() - began < 2
        stack.close()
        assert server.get("/-/healthy").status == 200
        assert server.server.complaints() == ""


def test_the_source_with_most_connections_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 12)
    with watched_here() as address, contextlib.ExitStack() as stack:

        def begin(source: int) -> gevent.socket.socket:
            one = gevent.socket.socket()
            stack.callback(one.close)
            one.bind((f"127.0.0.{source}", 0))
            one.connect(address)
            one.sendall(b"GET /-/rea")
            return one

        many = [begin(2) for _ in range(8)]
        few = [begin(source) for source in (3, 4, 5, 6, 7, 8)]
        with gevent.Timeout(20):
            assert [one.recv(1) for one in many[:2]] == [b"", b""]
            for one in [*many[2:], *few]:
                one.sendall(b"dy HTTP/1.0\r\n\r\n")
                assert one.recv(12) == b"HTTP/1.1 200"


def test_a_stop_lets_answers_end() -> None:
    """A standby stops its server when it takes over. Idle connections do not delay it."""
    begun = gevent.event.Event()

    def collect() -> Iterator[GaugeMetricFamily]:
        begun.set()
        gevent.sleep(0.05)
        yield GaugeMetricFamily("answered", "At the stop.", 1)

    listener = bind(InetAddress("127.0.0.1", 0))
    server = MetricsServer(listener, collect, lambda: (True, "serving"))
    server.start()
    with contextlib.closing(gevent.socket.create_connection(listener.socket.getsockname())) as idle:
        asking = gevent.socket.create_connection(listener.socket.getsockname())
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert begun.wait(10)
        began_mono = time.monotonic()
        server.stop()
        assert time.monotonic() - began_mono < 0.05 + http_server.STOP_LIMIT_S / 2
        with asking.makefile("rb") as answer:
            page = answer.read()
        assert page.startswith(b"HTTP/1.1 200") and b"\nanswered 1.0\n" in page
        assert idle.recv(1) == b""
    server.close()


@contextlib.contextmanager
def watched_here() -> Iterator[tuple[str, int]]:
    """Run a metrics server in this process; yield its address."""
    listener = bind(InetAddress("127.0.0.1", 0))
    server = MetricsServer(listener, list, lambda: (True, "serving"))
    server.start()
    try:
        yield listener.socket.getsockname()
    finally:
        server.close()


@pytest.mark.costly
def test_a_stop_closes_all_connections() -> None:
    with watched("--workers=1") as server:
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        raw.sendall(b"GET /met")
        assert server.server.stop() == 0
        raw.close()


# --- tubes --------------------------------------------------------------------------------------


@pytest.mark.costly
def test_the_choice_of_tubes() -> None:
    """Half by jobs, half by traffic; all others have an empty label."""
    with watched("--workers=2", "--metrics-tubes=4") as server, server.server.connect() as client:
        for number in range(20):
            client.ask(b"use some-%02d\r\n" % number)
            client.put()
        for tube, puts, deletes in ((b"full-1", 9, 0), (b"full-2", 8, 0), (b"busy", 7, 7)):
            client.ask(b"use %b\r\n" % tube)
            jobs = [client.put() for _ in range(puts)]
            for job in jobs[:deletes]:
                client.ask(b"delete %d\r\n" % job)
        found = server.scrape()
        shown = found.labels("beanstalkd_tube_jobs", "tube")
        assert {"full-1", "full-2", "busy", ""} < shown
        assert shown == server.scrape().labels("beanstalkd_tube_jobs", "tube")
        assert found.sum("beanstalkd_tubes_not_shown") == 20  # and default
        assert found.sum("beanstalkd_tube_jobs", tube="", state="ready") == 19
        assert found.sum("beanstalkd_tube_jobs") == found.sum("beanstalkd_jobs") == 37
        assert len(found.all("beanstalkd_tube_jobs_put_total")) == 4


@pytest.mark.costly
def test_metrics_tubes_0() -> None:
    with watched("--workers=1", "--metrics-tubes=0") as server:
        names = server.scrape().names
        assert not [name for name in names if name.startswith("beanstalkd_tube_")]
        assert "beanstalkd_tubes_not_shown" not in names
        assert "beanstalkd_jobs" in names


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    with ours("--metrics", f"unix:{path}"), socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(b"GET /-/ready HTTP/1.0\r\n\r\n")
        assert raw.makefile("rb").read().endswith(b"serving with 1 of 1 worker\n")
    assert not path.exists()


@pytest.mark.costly
def test_ipv6() -> None:
    port = free_port()
    with (
        ours("--metrics", f"[::1]:{port}"),
        socket.create_connection(("::1", port), timeout=10) as raw,
    ):
        raw.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert raw.makefile("rb").read().endswith(b"healthy\n")


@pytest.mark.parametrize(
    "address",
    ["", "9380", "127.0.0.1", "127.0.0.1:", ":9380", "::1:9380", "x:70000", "x:-1", "unix:"],
)
def test_an_invalid_address(address: str) -> None:
    assert "--metrics" in refusal(USAGE, "-p0", "-l127.0.0.1", "--metrics", address)


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal(BIND, "-p0", "-l127.0.0.1", "--metrics", address)
    assert address in line and "in use" in line


@pytest.mark.costly
def test_without_the_option_nothing_is_loaded() -> None:
    with ours() as server:
        text = Path(f"/proc/{server.pid}/maps").read_text()
        assert "beanstalkd_py" in text
        assert "_ssl" not in text
    with watched() as other:
        assert "_ssl" in Path(f"/proc/{other.server.pid}/maps").read_text()
