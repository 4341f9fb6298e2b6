"""A start, verify, repair and compact agree about every folder, however damaged.

Every warning of a start is damage for verify, at the same place. A folder without damage for verify
starts without warnings. Folders written by repair and compact have exactly the jobs that a start
finds.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog.damaged_folders import (
    KINDS,
    Started,
    ids_in,
    make,
    remove_foreign_files,
    snapshot,
    spoil,
    start,
)
from binlog.reader import files
from binlog.test_alternation import KEYS
from servers import reference

from beanstalkd_py import errors
from beanstalkd_py.binlog.compact import compact
from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.file_usage import folder_usage
from beanstalkd_py.binlog.folders import inspect_folder, locked_folder
from beanstalkd_py.binlog.repair import repair
from beanstalkd_py.binlog.verify import Verdict, verify
from beanstalkd_py.core.binlog_reader import Selection

pytestmark = pytest.mark.slow

FILE = 4096
EVERYDAY, MANY = 100, 600


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    parent = tmp_path_factory.mktemp("originals")
    for kind in KINDS:
        make(kind, parent / kind)
    yield parent
    shutil.rmtree(parent)


@pytest.fixture
def work(folder: Path) -> Path:
    """The folder for copies."""
    return folder


def verdict_of(folder: Path) -> Verdict:
    return verify(inspect_folder(folder), lambda damage: None)


def repaired(folder: Path, output: Path) -> int:
    """Repair the folder, and return the number of damaged places."""
    with locked_folder(folder, writing=False) as found:
        done = repair(found, output, FILE)
    assert (done.output is None) == (not done.damage)
    return len(done.damage)


def compacted(folder: Path, file_size: int = FILE) -> None:
    with locked_folder(folder, writing=True) as found:
        compact(found, file_size)


def same_jobs(one: Started, other: Started) -> None:
    assert one.jobs == other.jobs
    assert one.buried == other.buried
    assert one.last_id == other.last_id


def check_verdict(folder: Path, before: Started) -> Verdict:
    verdict = verdict_of(folder)
    assert verdict.clean == (not before.warnings), (verdict.damage, before.warnings)
    assert {f"{each.file}:{each.offset}" for each in verdict.damage} == before.places
    assert verdict.jobs == len(before.jobs)
    return verdict


def check_readers(folder: Path, verdict: Verdict) -> None:
    """Check that dump and stats agree with verify."""
    found = inspect_folder(folder)
    lines: list[bytes] = []
    clean = dump(found, Selection(as_json=True), lambda text: lines.append(bytes(text)))
    rows = b"".join(lines).splitlines()
    assert clean == verdict.clean
    assert len(rows) == verdict.entries + len(verdict.damage)
    usage = folder_usage(found)
    total = usage.total()
    assert total.jobs == verdict.jobs
    assert total.full_entries + total.short_entries == verdict.entries
    assert usage.damage == verdict.damage


def check_repair(folder: Path, work: Path, before: Started) -> None:
    output = work / "repaired"
    if repaired(folder, output) == 0:
        assert not output.exists()
        return
    assert verdict_of(output).clean
    after = start(output, work / "scratch")
    same_jobs(after, before)
    assert after.warnings == []


def check_compaction(folder: Path, work: Path, before: Started, verdict: Verdict) -> None:
    target = work / "compacted"
    shutil.copytree(folder, target)
    if not all(damage.torn for damage in verdict.damage):
        unchanged = snapshot(target)
        with pytest.raises(errors.BinlogToolError, match="binlog repair"):
            compacted(target)
        assert snapshot(target) == unchanged | {"lock": (target / "lock").read_bytes()}
        return
    compacted(target)
    assert verdict_of(target).clean
    after = start(target, work / "scratch")
    same_jobs(after, before)
    unchanged = snapshot(target)
    compacted(target)
    assert snapshot(target) == unchanged


def check(kind: str, seed: int, originals: Path, work: Path) -> None:
    dice = random.Random(f"{kind} {seed}")
    folder = work / "folder"
    shutil.copytree(originals / kind, folder)
    spoiled = spoil(folder, dice)
    unchanged = snapshot(folder)
    try:
        before = start(folder, work / "scratch")
        verdict = check_verdict(folder, before)
        check_readers(folder, verdict)
        check_repair(folder, work, before)
        assert snapshot(folder) == unchanged
        check_compaction(folder, work, before, verdict)
    except BaseException as error:
        error.add_note(f"seed {seed} of {kind}: {spoiled}")
        raise
    finally:
        for path in work.iterdir():
            shutil.rmtree(path)


@pytest.mark.parametrize("kind", KINDS)
def test_all_agree(kind: str, originals: Path, work: Path) -> None:
    for seed in range(EVERYDAY):
        check(kind, seed, originals, work)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_all_agree_often(kind: str, originals: Path, work: Path) -> None:
    for seed in range(EVERYDAY, MANY):
        check(kind, seed, originals, work)


def seen_by_c(folder: Path) -> dict[int, tuple[bytes, dict[str, str]]]:
    jobs = {}
    with reference("-b", folder, "-z", "100000") as server, server.connect() as client:
        for number in ids_in(folder):
            reply = client.ask(b"peek %d\r\n" % number)
            if reply == b"NOT_FOUND\r\n":
                continue
            stats = client.job_stats(number)
            stats["buries"] = str(int(stats["buries"]) - (stats["state"] == "buried"))
            shown = {key: stats[key].strip('"') for key in (*KEYS, "tube")}
            jobs[number] = (reply, shown)
        total = client.stats()
        states = ("ready", "delayed", "buried")
        assert len(jobs) == sum(int(total[f"current-jobs-{state}"]) for state in states)
    return jobs


def check_c(kind: str, seed: int, originals: Path, work: Path) -> None:
    """Check that C beanstalkd finds the same jobs in the output of repair and compact."""
    folder = work / "folder"
    shutil.copytree(originals / kind, folder)
    spoil(folder, random.Random(f"{kind} {seed}"))
    due = start(folder, work / "scratch")
    output = work / "repaired"
    if repaired(folder, output) == 0:
        compacted(folder, 1 << 16)
        remove_foreign_files(folder)
        output = folder
    found = seen_by_c(output)
    assert found.keys() == due.jobs.keys()
    for number, (reply, stats) in found.items():
        body, shown = due.jobs[number]
        assert reply == b"FOUND %d %d\r\n%b\r\n" % (number, len(body), body)
        ours = {key: value.strip('"') for key, value in shown}
        for key in ("delay", "ttr"):
            # C beanstalkd drops fractions of a second, which only a flipped bit can make.
            assert int(ours[key]) - int(stats[key]) in (0, 1)
            stats[key] = ours[key]
        assert {key: ours[key] for key in stats} == stats
    for path in work.iterdir():
        shutil.rmtree(path)


@pytest.mark.parametrize("kind", KINDS)
def test_c_beanstalkd_agrees(kind: str, originals: Path, work: Path) -> None:
    for seed in range(3):
        check_c(kind, seed, originals, work)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_c_beanstalkd_agrees_often(kind: str, originals: Path, work: Path) -> None:
    for seed in range(3, 60):
        check_c(kind, seed, originals, work)


def test_a_compacted_folder_has_as_few_files_as_possible(work: Path) -> None:
    """One file if all jobs fit; C beanstalkd kicks them in the order of burying."""
    folder = work / "folder"
    make("ours", folder)
    before = start(folder, work / "scratch")
    assert len(files(folder)) > 3
    compacted(folder, 1 << 20)
    assert len(files(folder)) == 2, "one, and the small one with its length entry"
    with reference("-b", folder) as server, server.connect() as client:
        for tube, order in before.buried.items():
            client.ask(b"use %b\r\n" % tube.strip('"').encode())
            for number in order:
                assert client.ask(b"peek-buried\r\n").split()[1] == b"%d" % number
                assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
