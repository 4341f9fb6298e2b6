"""RocketMQ's own code opens our stores, finds every message, and appends to them.

The tests need Java and Maven, which downloads the code once. `tools/test --rocketmq` provides both.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from history.stores import files_of, opened, queue_messages

from beanstalkd_py.errors import StoreUsageError
from beanstalkd_py.history.store import Message, Options, Sizes, Store, StoreReader
from beanstalkd_py.history.verify import verify

pytestmark = [pytest.mark.rocketmq, pytest.mark.timeout(900)]

JAVA = Path(__file__).with_name("java")
SIZES = Sizes(segment_bytes=65536, queue_file_units=50, index_slots=100, index_entries=500)
OPTIONS = Options(sizes=SIZES, background=False, retention=None)


@pytest.fixture(scope="module")
def classpath(tmp_path_factory) -> str:
    """Return the class path of RocketMQ's store and of the compiled driver."""
    built = tmp_path_factory.mktemp("java")
    maven = ["mvn", "-q", "-B", "-f", JAVA / "pom.xml", "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={built / 'classpath'}"], check=True, timeout=600)
    path = (built / "classpath").read_text()
    java = ["javac", "-cp", path, "-d", built, *JAVA.glob("*.java")]
    subprocess.run(java, check=True, timeout=120)
    return f"{path}:{built}"


def some_messages() -> list[Message]:
    dice = random.Random(5)
    return [
        Message(
            topic=dice.choice(["tube0", "tube1", "mail%2Fx", "L" * 140]),
            queue_id=dice.randrange(3),
            body=dice.randbytes(dice.randrange(400)),
            properties={
                "KEYS": f"k{number} shared{number % 100}",
                "TAGS": dice.choice(["deleted", "expired"]),
                "UNIQ_KEY": f"u{number}",
                "TUBE": "\u540d\u524d",
            },
            born_timestamp=1_700_000_000_000 + number,
            born_host=("::1", 5) if dice.random() < 0.2 else ("10.0.0.1", 3),
            store_host=("fe80::1", 9) if dice.random() < 0.1 else None,
            reconsume_times=number % 5,
            sys_flag=dice.choice([0, 0, 0, 8]),
        )
        for number in range(3000)
    ]


def run_java(classpath: str, folder: Path, *arguments: str) -> str:
    """Run a class of RocketMQ's reader and writer of the store in `folder`. Return the output."""
    temporary = folder.parent / "java"  # for its copies of the libraries of RocksDB
    temporary.mkdir(exist_ok=True)
    java = ["java", f"-Djava.io.tmpdir={temporary}", "-cp", classpath, *arguments]
    ran = subprocess.run(java, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def read_by_rocketmq(folder: Path, classpath: str, *more: str) -> list[list[str]]:
    sizes = (SIZES.segment_bytes, SIZES.queue_file_units, SIZES.index_slots, SIZES.index_entries)
    output = run_java(classpath, folder, "ReadStore", str(folder), *map(str, sizes), *more)
    return [line.split("\t") for line in output.splitlines()]


def assert_has_read_all(rows: list[list[str]], folder: Path) -> None:
    with StoreReader.open(folder) as store:
        messages = {each.offset: each for each in store.scan()}
        bounds = [str(store.log.begin), str(store.log.end)]
    assert rows[0] == ["bounds", *bounds]
    assert not [row for row in rows if row[0] == "stuck"]
    read = [row[1:] for row in rows if row[0] == "message"]
    assert len(read) == len(messages) == 3000
    for offset, queue_offset, topic, queue_id, _, body, stored in read:
        message = messages.pop(int(offset))
        mine = (message.queue_offset, message.topic, message.queue_id, message.body.hex())
        assert mine == (int(queue_offset), topic, int(queue_id), body)
        assert message.store_timestamp == int(stored)
    found = [row[3] for row in rows if row[0] == "key"]
    assert found == ["true"] * 6000


def test_rocketmq_reads_a_closed_store_and_changes_nothing_in_it(tmp_path, classpath):
    with Store.open(tmp_path / "store", OPTIONS) as store:
        store.append(some_messages())
    before = files_of(tmp_path / "store")
    rows = read_by_rocketmq(tmp_path / "store", classpath)
    assert_has_read_all(rows, tmp_path / "store")
    after = files_of(tmp_path / "store")
    assert {path: after[path] for path in before if path != "checkpoint"} == {
        path: data for path, data in before.items() if path != "checkpoint"
    }


def test_rocketmq_recovers_a_killed_store_and_appends_to_it(tmp_path, classpath):
    with opened(tmp_path / "store", OPTIONS) as store:
        store.append(some_messages())
        store.dispatch()
        store._save()
    image = tmp_path / "read"
    subprocess.run(["cp", "-r", tmp_path / "store", image], check=True)
    assert_has_read_all(read_by_rocketmq(image, classpath), tmp_path / "store")
    rows = read_by_rocketmq(tmp_path / "store", classpath, "tube0")
    assert [row[1] for row in rows if row[0] == "put"] == ["PUT_OK"] * 10
    with Store.open(tmp_path / "store", OPTIONS) as store:
        assert store.recovered.was_clean
        assert not store.recovered.rebuilt
        assert [each.body for each in store.query("tube0", "java3")] == [b"from java 3"]
        store.append([Message(topic="tube0", body=b"and on", properties={"KEYS": "on"})])
        store.dispatch()
        bodies = [each.body for each in queue_messages(store, "tube0")[-2:]]
        assert bodies == [b"from java 9", b"and on"]
        assert verify(store).faults == []
    assert len(list(StoreReader.open(tmp_path / "store").scan())) == 3011


# --- kinds of stores that only RocketMQ writes ----------------------------------------------------


def run_rocketmq(classpath: str, folder: Path, kind: str, mode: str = "write") -> str:
    """Return the output. `mode` is "write", "check" (load) or "crash" (write, never close)."""
    return run_java(classpath, folder, "WriteStore", str(folder), kind, mode)


@pytest.mark.parametrize("kind", ["batch-queues", "rocksdb-queues"])
def test_rocketmq_loads_a_store_that_was_rejected_here(tmp_path, classpath, kind):
    folder = tmp_path / kind
    run_rocketmq(classpath, folder, kind)
    before = files_of(folder)
    with pytest.raises(StoreUsageError, match="for writing"):
        Store.open(folder, Options(background=False, retention=None))
    assert files_of(folder) == before
    assert "messages\t40\n" in run_rocketmq(classpath, folder, kind, "check")


@pytest.mark.parametrize("mode", ["write", "crash"])
@pytest.mark.parametrize(
    "kind", ["batch-queues", "rocksdb-queues", "light-queues", "no-index", "no-mmap"]
)
def test_verify_reports_no_fault_in_any_kind_of_store(tmp_path, classpath, kind, mode):
    run_rocketmq(classpath, tmp_path / kind, kind, mode)
    with StoreReader.open(tmp_path / kind) as store:
        assert store.fault == "" or mode == "crash"
        assert len(list(store.scan())) == 40
        assert verify(store).faults == []


@pytest.mark.parametrize("kind", ["light-queues", "no-index", "no-mmap"])
def test_rocketmq_loads_a_store_that_was_appended_to_here(tmp_path, classpath, kind):
    run_rocketmq(classpath, tmp_path / kind, kind)
    with Store.open(tmp_path / kind, Options(background=False, retention=None)) as store:
        store.append([Message(topic="special", body=b"more", properties={"KEYS": "more"})])
    assert "messages\t41\n" in run_rocketmq(classpath, tmp_path / kind, kind, "check")
