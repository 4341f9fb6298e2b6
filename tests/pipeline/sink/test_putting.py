"""The sink without Spark: rows and connections."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter as Multiset

import pyarrow as pa
import pytest
from cli.fault_proxy import FaultProxy
from pipeline.sink.scripted import scripted
from pipeline.sink.tubes import Job, address, jobs, total_jobs
from processes import eventually
from servers import ours, reference

from beanstalkd_py.errors import NoConnectionError, PipelineUsageError, RefusedError
from beanstalkd_py.pipeline.sink.put import TaskPutter
from beanstalkd_py.pipeline.sink.rows import COLUMNS, PutDefaults
from beanstalkd_py.pipeline.sink.rows import OPTIONS as ROW_OPTIONS
from beanstalkd_py.pipeline.sink.server import OPTIONS, TLS_OPTIONS, TubeServer
from beanstalkd_py.pipeline.sources.options import Options

BODIES = (
    b"",
    b"\r\n",
    b"put 1 2 3 4\r\n",
    bytes(range(256)),
    b"x" * 65535,
    "\u00e4\u20ac".encode(),
)


def server_at(where: str, timeout_s: float = 20) -> TubeServer:
    return TubeServer.of(Options({"addr": where, "timeout": str(timeout_s)}, OPTIONS))


def some_jobs(count: int, tubes: int, seed: int = 1) -> list[Job]:
    made = random.Random(seed)
    return [
        Job(
            tube=f"t{made.randrange(tubes)}",
            priority=made.choice((0, 1, 65536, 2**32 - 1)),
            delay=made.choice((0, 0, 3600, 2**31)),
            ttr=made.choice((1, 60, 86400)),
            body=b"%d:" % number + made.choice(BODIES)[:65000],
        )
        for number in range(count)
    ]


def batches_of(rows: list[Job], size: int = 100) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pylist([row._asdict() for row in rows[start : start + size]])
        for start in range(0, len(rows), size)
    ]


def put(where: str | TubeServer, batches: list[pa.RecordBatch], retries: int = 0) -> TaskPutter:
    putting = putting_to(where, retries)
    putting.run(iter(batches))
    return putting


def putting_to(where: str | TubeServer, retries: int = 0) -> TaskPutter:
    server = server_at(where) if isinstance(where, str) else where
    return TaskPutter(server, PutDefaults(), retries, sleep=lambda _pause_s: None)


def by_tube(rows: list[Job]) -> dict[str, list[Job]]:
    return {name: [row for row in rows if row.tube == name] for name in {row.tube for row in rows}}


@pytest.mark.parametrize("start", [ours, reference])
def test_every_row_is_a_job_and_those_of_a_tube_keep_their_order(start):
    rows = some_jobs(1500, tubes=7)
    with start() as server:
        putting = put(address(server), batches_of(rows))
        assert by_tube(jobs(server)) == by_tube(rows)
    assert (putting.rows, putting.size) == (1500, sum(len(row.body) for row in rows))


@pytest.mark.costly
def test_a_tube_for_each_row_and_two_workers():
    rows = [row._replace(tube=f"t{number}" * 20) for number, row in enumerate(some_jobs(900, 1))]
    with ours("--workers", "2") as server:
        put(address(server), batches_of(rows, size=450))
        assert Multiset(jobs(server, workers=2)) == Multiset(rows)


def test_missing_values_get_defaults():
    batch = pa.RecordBatch.from_pydict(
        {
            "ttr": pa.array([None, 7], pa.int16()),
            "body": pa.array(["\u00e4", "b"], pa.large_string()),
            "tube": pa.array([None, "given"]),
        }
    )
    with ours() as server:
        terms = PutDefaults(tube="usual", priority=9, delay=8)
        TaskPutter(server_at(address(server)), terms, 0).run(iter([batch]))
        assert sorted(jobs(server)) == [
            Job("given", 9, 8, 7, b"b"),
            Job("usual", 9, 8, 60, "\u00e4".encode()),
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"body": None}, "column body is null in a row"),
        ({"tube": "a b"}, "column tube: 'a b' is not a tube name"),
        ({"tube": "x" * 201}, "is not a tube name; give 1 to 200 letters"),
        ({"priority": -1}, "column priority: -1 is not a whole number from 0 to 4294967295"),
        ({"ttr": 2**32}, "column ttr: 4294967296 is not a whole number"),
        ({"body": b"x" * 1001}, "a row for tube t0 has a body of 1001 bytes, and the server takes"),
    ],
)
def test_an_invalid_row_puts_nothing_of_its_batch(wrong, message):
    right = [Job("t0", 1, 0, 60, b"right")] * 700
    second = [row._asdict() for row in right] + [{**right[0]._asdict(), **wrong}]
    with ours("-z", "1000") as server:
        with pytest.raises(PipelineUsageError, match=message) as failure:
            put(address(server), [*batches_of(right, 700), pa.RecordBatch.from_pylist(second)])
        assert str(failure.value).endswith("; 700 rows of this task put before, which stay")
        assert total_jobs(server) == 700


class ThenDirect:
    """Connects through a proxy once, then directly."""

    def __init__(self, *servers: TubeServer) -> None:
        self._servers = list(servers)

    def connect(self):
        return (self._servers.pop(0) if len(self._servers) > 1 else self._servers[0]).connect()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("start", [ours, reference])
def test_a_lost_connection_loses_no_row(start, before, share):
    rows = [
        row._replace(body=b"%d" % number, delay=0)
        for number, row in enumerate(some_jobs(4000, tubes=3, seed=before))
    ]
    with start() as server, FaultProxy(server.port, before, share).open() as proxy:
        both = ThenDirect(server_at(proxy.address), server_at(address(server)))
        putting = put(both, batches_of(rows, size=2000), retries=1)
        found = Multiset(jobs(server))
        assert proxy.cut
        assert set(found) == set(rows)
        assert putting.rows == len(rows)
        again = found.total() - len(rows)
        if share == 0 and before == 0:
            assert again == 0
        if share == 1:
            assert again > 0
        assert max(found.values()) <= 2


@pytest.mark.parametrize("name", TLS_OPTIONS)
@pytest.mark.parametrize("where", ["127.0.0.1:25112", "unix:/run/it", "[::1]:5", None])
def test_certificates_without_tls_are_rejected(name, where):
    given = {name: "/nosuch/ca.pem", "tlsCert": "/nosuch/cert.pem"}
    if name == "tlsCa":
        del given["tlsCert"]
    if where is not None:
        given["addr"] = where
    first = next(option for option in TLS_OPTIONS if option in given)
    with pytest.raises(PipelineUsageError) as failure:
        TubeServer.of(Options(given, OPTIONS))
    actual = str(failure.value)
    assert actual.startswith(
        f"{first} is for TLS, and addr {where or '127.0.0.1:11300'} is without;"
    )
    assert "give tls://" in actual and "\n" not in actual


def test_certificates_with_tls_are_kept():
    given = {"addr": "tls://here:5", "tlsCa": "/ca", "tlscert": "/cert", "TLSKEY": "/key"}
    server = TubeServer.of(Options(given, OPTIONS))
    assert server.address.tls
    tls_options = server.tls_options
    assert (tls_options.ca, tls_options.cert, tls_options.key) == ("/ca", "/cert", "/key")


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", [*OPTIONS, *ROW_OPTIONS])
def test_an_empty_option_is_rejected(name, value):
    """It is probably a variable that was not set."""
    of = TubeServer.of if name in OPTIONS else PutDefaults.of
    with pytest.raises(PipelineUsageError, match=f"^{name} is empty; give a value, or leave it"):
        of(Options({name: value}, (*OPTIONS, *ROW_OPTIONS)))


def test_retries_are_limited():
    pauses_s: list[float] = []
    putting = TaskPutter(server_at("127.0.0.1:1"), PutDefaults(), 3, sleep=pauses_s.append)
    with pytest.raises(NoConnectionError, match=r"no server at 127\.0\.0\.1:1"):
        putting.run(iter(batches_of(some_jobs(1, 1))))
    assert pauses_s == [0.5, 1, 2]


def test_a_draining_server_ends_the_task():
    with ours() as server:
        server.signal(signal.SIGUSR1)
        with server.connect() as client:
            assert eventually(lambda: client.ask(b"put 0 0 1 0\r\n\r\n") == b"DRAINING\r\n")
        with pytest.raises(
            RefusedError, match=r"put of \d+ bytes into tube t0: the server accepts no"
        ):
            put(address(server), batches_of(some_jobs(3, 1)), retries=3)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (b"OUT_OF_MEMORY", "has no space for this job"),
        (b"JOB_TOO_BIG", "exceeds max-job-size"),
        (b"BURIED 77", "out of memory and buried the job"),
        (b"EXPECTED_CRLF", r"the server refused \(EXPECTED_CRLF\)"),
        (b"INTERNAL_ERROR", "internal error of the server"),
    ],
)
def test_a_rejected_put_fails_the_task_and_leaves_no_job(refusal, message):
    puts = 0

    def answer(command: bytes, used: bytes) -> bytes:
        nonlocal puts
        if command.startswith(b"use "):
            return b"USING %b\r\n" % command[4:]
        if command.startswith(b"delete "):
            return b"DELETED\r\n"
        puts += 1
        return refusal + b"\r\n" if puts in (501, 502) else b"INSERTED %d\r\n" % puts

    with scripted(answer) as (where, commands):
        putting = putting_to(where, retries=3)
        with pytest.raises(
            RefusedError, match=f"put of 5 bytes into tube a: .*{message}"
        ) as failure:
            putting.run(iter(batches_of([Job("a", 0, 0, 1, b"five!")] * 1200, 1200)))
    # All commands sent before the rejection get replies, too.
    assert str(failure.value).endswith(f"; {puts - 2} rows of this task put before, which stay")
    assert putting.rows == puts - 2
    deleted = [command for command in commands if command.startswith(b"delete ")]
    assert deleted == ([b"delete 77", b"delete 77"] if refusal.startswith(b"BURIED") else [])


def test_jobs_misplaced_by_a_rejected_use_are_deleted():
    ids = iter(range(1, 100))
    tubes: dict[int, bytes] = {}

    def answer(command: bytes, used: bytes) -> bytes:
        if command == b"use b":
            return b"OUT_OF_MEMORY\r\n"
        if command.startswith(b"use "):
            return b"USING %b\r\n" % command[4:]
        if command.startswith(b"delete "):
            del tubes[int(command.split()[1])]
            return b"DELETED\r\n"
        job = next(ids)
        tubes[job] = used
        return b"INSERTED %d\r\n" % job

    rows = [Job(name, 0, 0, 1, b"") for name in ("a", "a", "b", "b", "b", "c")]
    with (
        scripted(answer) as (where, _),
        pytest.raises(RefusedError, match=r"use b: .*; 3 rows of this task put before"),
    ):
        put(where, batches_of(rows))
    assert sorted(tubes.values()) == [b"a", b"a", b"c"]


def test_slow_reading_of_replies_is_no_deadlock():
    """Replies are as long as possible and buffers small."""
    rows = [Job(f"{number:05}" * 40, 0, 0, 1, b"x" * 50) for number in range(4000)]
    longest = b"INSERTED 18446744073709551615\r\n"

    def answer(command: bytes, used: bytes) -> bytes:
        return b"USING %b\r\n" % command[4:] if command.startswith(b"use ") else longest

    with scripted(answer) as (where, commands):
        putting = put(where, batches_of(rows, 4000))
    assert putting.rows == 4000 == sum(command.startswith(b"put ") for command in commands)


@pytest.mark.costly
def test_putting_imports_neither_the_server_nor_spark():
    modules = "put, held_jobs, server"
    unwanted = ("pyspark", "gevent", "beanstalkd_py.core", "beanstalkd_py.server")
    for imported, but in ((modules, unwanted), ("writer, take", unwanted[1:])):
        code = (
            f"import sys; from beanstalkd_py.pipeline.sink import {imported};"
            f" print([n for n in {but!r} if n in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "[]\n", (done.stdout, done.stderr)


def test_columns_match_the_fields_of_a_job():
    assert set(COLUMNS) == set(Job._fields)
