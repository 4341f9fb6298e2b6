"""Two files that beanstalkd wrote; tests/binlog/data/README.md describes their contents."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from binlog.reader import files, read_file
from core.rig import SECOND, START, Rig

DATA = Path(__file__).parent / "data"
# The time of the files, just after they were written.
WRITTEN = START._replace(wall=1_795_197_930 * SECOND)
KEYS = ("tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries")

Expected = dict[int, tuple[tuple[str, ...], bytes]]

# From the independent reader: tube, state, pri, delay, ttr, counters, and the body.
VERSION_5: Expected = {
    1: (('"test"', "delayed", "1", "2", "3", "0", "0", "0", "0"), b"test"),
    2: (('"test"', "delayed", "4", "1000", "2", "0", "0", "0", "0"), b"x"),
    3: (('"test"', "buried", "6", "0", "60", "1", "0", "0", "1"), b"yy"),
    5: (('"test"', "ready", "9", "0", "60", "0", "0", "0", "0"), b"e"),
}
VERSION_7: Expected = {3: (('"t1"', "ready", "1", "0", "60", "0", "0", "0", "0"), b"zzz")}
CASES = [("v5-1.4.6.binlog.1", VERSION_5, 5), ("v7-lifecycle.binlog.1", VERSION_7, 3)]


def check(rig: Rig, expected: Expected, last: int) -> None:
    client = rig.client()
    for number in range(1, last + 2):
        if number not in expected:
            assert client.body(number) is None
            continue
        fields, body = expected[number]
        stats = client.job(number)
        assert (tuple(stats[key] for key in KEYS), client.body(number)) == (fields, body)


@pytest.mark.parametrize(("name", "expected", "last"), CASES)
def test_every_job_and_field(folder: Path, name: str, expected: Expected, last: int) -> None:
    shutil.copy(DATA / name, folder / "binlog.1")
    for _ in range(3):
        with Rig(folder, now=WRITTEN) as rig:
            assert rig.warnings() == []
            check(rig, expected, last)
            assert rig.counters.binlog_oldest == 1
    with Rig(folder, now=WRITTEN) as rig:
        assert rig.client().put() == last + 1


@pytest.mark.parametrize(("name", "expected", "last"), CASES)
def test_the_reader_of_these_tests_agrees(
    folder: Path, name: str, expected: Expected, last: int
) -> None:
    """This proves that the expected values above are those of the file."""
    shutil.copy(DATA / name, folder / "binlog.1")
    found: Expected = {}
    for e in read_file(folder / "binlog.1"):
        tube, body = found[e.id][0][0] if e.id in found else "", found.get(e.id, ((), b""))[1]
        if e.tube is not None and e.body is not None:
            tube, body = f'"{e.tube.decode()}"', e.body
        numbers = (e.pri, e.delay // SECOND, e.ttr // SECOND)
        counts = (e.reserves, e.timeouts, e.releases, e.buries)
        found[e.id] = ((tube, e.state, *map(str, numbers), *map(str, counts)), body)
        if e.state == "invalid":
            del found[e.id]
    assert found == expected
    assert max(e.id for e in read_file(folder / "binlog.1")) == last


def test_delays_of_version_5_are_microseconds(folder: Path) -> None:
    shutil.copy(DATA / "v5-1.4.6.binlog.1", folder / "binlog.1")
    second = 10**9
    with Rig(folder, now=WRITTEN._replace(wall=WRITTEN.wall + second)) as rig:
        # The deadline is 2.305985 s after WRITTEN.
        rig.advance(1_305_985_000 - 1)
        assert rig.client().job(1)["state"] == "delayed"
        rig.advance(1)
        assert rig.client().job(1)["state"] == "ready"
        assert rig.client().job(2)["time-left"] == str(1000 - 2)
        assert rig.client().job(1)["age"] == "2"


def test_compaction_converts_version_5_to_version_7(folder: Path) -> None:
    """By compaction or by changes of jobs; the old file is removed after its last job has moved."""
    shutil.copy(DATA / "v5-1.4.6.binlog.1", folder / "binlog.1")
    with Rig(folder, file_size=4096, now=WRITTEN) as rig:
        client = rig.client()
        for _ in range(200):
            client.do(b"delete %d" % client.put(b"x" * 200), b"DELETED")
        rig.stop()
    assert {path.read_bytes()[0] for path in files(folder)} == {7}
    with Rig(folder, now=WRITTEN) as rig:
        check(rig, VERSION_5, 5)


def test_version_5_cut_at_every_byte_of_its_last_entry(folder: Path) -> None:
    path = folder / "binlog.1"
    path.write_bytes((DATA / "v5-1.4.6.binlog.1").read_bytes())
    last = read_file(path)[-1]
    whole = path.read_bytes()
    expected = {number: job for number, job in VERSION_5.items() if number != last.id}
    for at in range(last.offset, last.offset + last.size):
        shutil.rmtree(folder)
        folder.mkdir()
        path.write_bytes(whole[:at])
        with Rig(folder, now=WRITTEN) as rig:
            check(rig, expected, last.id)
