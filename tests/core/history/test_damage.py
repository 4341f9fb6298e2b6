"""Damage, growing files, disk errors and checkpoints: no crash, and no other job is lost."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from core import fault_injection
from core.history.simulated_binlogs import (
    HEADER,
    MOST_BODY,
    SECOND,
    TUBES,
    Job,
    JobMessage,
    World,
    follow,
    key_of,
    read_all,
    topic_of,
    unpack,
)

from beanstalkd_py.core.job_history import JobHistories

FINAL = 1000


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """Faults belong to the process: none outlives its test."""
    yield
    fault_injection.heal()


def lived(world: World, tube: bytes, body: bytes, delay: int = 0) -> Job:
    """A job with many events before its end."""
    world.now += SECOND
    job = world.put(0, tube, body, 7, delay, 60)
    world.now += (delay + 1) * SECOND
    world.wake(job)
    world.reserve(job)
    world.bury(job, 3)
    world.ready(job, "kick")
    world.reserve(job)
    world.release(job, 5, 2)
    return job


def small(folder: Path) -> World:
    """Two files with four jobs, of which three end; entries of all lie between each other."""
    world = World(folder, 1, history=True)
    server = world.servers[0]
    first = lived(world, TUBES[0], b"first")
    second = lived(world, TUBES[1], b"second", delay=4)
    world.put(0, TUBES[1], b"stays", 1, 0, 60)
    world.delete(first, "truncated")
    server.roll(skip=1, ours=True)
    third = lived(world, TUBES[0], b"third")
    world.copy(second)
    world.delete(third)
    world.delete(second)
    return world


def history_of(world: World) -> tuple[JobHistories, list[JobMessage]]:
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    return histories, read_all(histories, 0, FINAL, 0)


def spans(world: World, path: Path) -> list[tuple[int, int, int]]:
    """Begin, end and job of each entry."""
    data = path.read_bytes()
    found = []
    at = len(HEADER)
    while at < len(data):
        name = int.from_bytes(data[at : at + 4], "little")
        record = at + 4 + name
        number = int.from_bytes(data[record : record + 8], "little")
        size = int.from_bytes(data[record + 32 : record + 36], "little")
        end = record + 80 + (size if name else 0)
        found.append((at, end, number))
        at = end
    return found


@pytest.mark.costly
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_at_every_place_costs_one_job_at_most(tmp_path: Path, flip: int) -> None:
    world = small(tmp_path)
    server = world.servers[0]
    damaged = 0
    for number in (1, 3):
        path = server.file(number)
        whole = path.read_bytes()
        for begin, end, job in spans(world, path):
            others = [one for one in server.messages if one.properties["KEYS"] != str(job)]
            for at in range(begin, end, 1 if flip == 0xFF else 7):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
                histories, messages = history_of(world)
                assert [one for one in messages if one.properties["KEYS"] != str(job)] == others, at
                damaged += bool(histories.faults())
                histories.close()
        path.write_bytes(whole)
    assert damaged > 400 / (1 if flip == 0xFF else 7)


def test_a_flipped_byte_in_the_header_of_a_file(tmp_path: Path) -> None:
    world = small(tmp_path)
    path = world.servers[0].file(1)
    path.write_bytes(b"\x08" + path.read_bytes()[1:])
    histories, messages = history_of(world)
    assert messages == [
        one for one in world.servers[0].messages if one.properties["KEYS"] == "4"
    ] + [one for one in messages if one.properties["KEYS"] == "2"]
    assert [(fault.file, fault.offset) for fault in histories.faults()] == [(1, 0)]
    assert "version is 8" in history_of(world)[0].faults()[0].what
    histories.close()


def test_growing_by_one_byte_after_the_other(tmp_path: Path) -> None:
    world = small(tmp_path)
    server = world.servers[0]
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    messages: list[JobMessage] = []
    ends = {begin: end for number in (3,) for begin, end, _ in spans(world, server.file(number))}
    for number in (1, 3):
        for end in range(server.file(number).stat().st_size + 1):
            messages += read_all(histories, 0, number, end)
            due = [
                one
                for one in server.messages
                if one.place[0] < number
                or (one.place[0] == number == 1 and one.place[1] + 84 <= end)
                or (one.place[0] == number == 3 and ends[one.place[1]] <= end)
            ]
            assert messages == due
            assert histories.faults() == []
    assert messages == server.messages
    histories.close()


def test_bytes_after_the_durable_position_are_not_read(tmp_path: Path) -> None:
    world = small(tmp_path)
    server = world.servers[0]
    path = server.file(3)
    whole = path.read_bytes()
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    messages = []
    for begin, _, _ in spans(world, path):
        path.write_bytes(whole[:begin] + bytes(len(whole) - begin))
        messages += read_all(histories, 0, 3, begin)
    path.write_bytes(whole)
    messages += read_all(histories, 0, 3, len(whole))
    assert messages == server.messages
    assert histories.faults() == []
    histories.close()


def test_a_torn_end_is_reported_when_the_file_is_over(tmp_path: Path) -> None:
    world = small(tmp_path)
    server = world.servers[0]
    path = server.file(1)
    with path.open("ab") as file:
        file.write(b"\x07\x00\x00\x00default" + bytes([9] * 30))
    size = path.stat().st_size
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    messages = [*read_all(histories, 0, 1, size), *read_all(histories, 0, 1, size)]
    assert histories.faults() == []
    messages += read_all(histories, 0, FINAL, 0)
    (fault,) = histories.faults()
    assert (fault.file, fault.offset) == (1, size - 41)
    assert "not written to its end" in fault.what
    assert histories.faults() == []
    assert messages == server.messages
    histories.close()


@pytest.mark.parametrize("kind", [fault_injection.Call.READ, fault_injection.Call.OPEN])
def test_a_call_that_fails_once_loses_nothing(tmp_path: Path, kind: fault_injection.Call) -> None:
    world = small(tmp_path)
    failed = 0
    for nth in range(1, 40):
        histories = JobHistories(topic_of, MOST_BODY)
        follow(world, histories)
        fault_injection.fail(kind, nth=nth, error=errno.EIO)
        messages: list[JobMessage] = []
        more = True
        while more:
            try:
                progress = histories.read(0, FINAL, 0, 200)
            except OSError as error:
                assert error.errno == errno.EIO
                failed += 1
                continue
            messages += unpack(progress.items)
            more = progress.more
        fault_injection.heal()
        assert messages == world.servers[0].messages
        assert histories.faults() == []
        histories.close()
    assert failed > 1


def test_a_disk_that_does_not_give_a_file_does_not_stop_the_others(tmp_path: Path) -> None:
    world = small(tmp_path)
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    fault_injection.fail(fault_injection.Call.READ, nth=1, error=errno.EIO, lasting=True)
    with pytest.raises(OSError, match="Input/output"):
        histories.read(0, 1, 10_000, 1 << 20)
    with pytest.raises(OSError, match="Input/output"):
        histories.read(0, 1, 10_000, 1 << 20)
    assert histories.read(0, 1, 10_000, 1 << 20).count == 0
    fault_injection.heal()
    (fault,) = histories.faults()
    assert "cannot be read" in fault.what
    assert [one.properties["KEYS"] for one in read_all(histories, 0, FINAL, 0)] == ["4", "2"]
    histories.close()


def test_a_full_entry_that_is_gone_leaves_a_message_without_a_body(tmp_path: Path) -> None:
    world = World(tmp_path, 1, history=True)
    server = world.servers[0]
    job = world.put(0, TUBES[1], b"gone", 1, 0, 60)
    server.roll(skip=0, ours=True)
    world.reserve(job)
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    read_all(histories, 0, server.number, server.size)
    server.file(1).unlink()
    world.delete(job)
    (messages,) = read_all(histories, 0, server.number, server.size)
    assert messages.body == b""
    assert messages.properties["body-bytes"] == "4"
    assert messages.properties["TUBE"] == TUBES[1].decode()
    (fault,) = histories.faults()
    assert (fault.file, fault.offset) == (1, 4)
    assert histories.stats.left_out == 1
    assert histories.stats.open == 0
    histories.close()


def test_an_end_without_a_full_entry_is_counted(tmp_path: Path) -> None:
    world = small(tmp_path)
    world.servers[0].file(1).unlink()
    histories, messages = history_of(world)
    assert [one.properties["KEYS"] for one in messages] == ["4", "2"]
    assert histories.stats.orphans == 0
    histories.close()
    (tmp_path / "other").mkdir()
    world = World(tmp_path / "other", 1, history=True)
    job = lived(world, TUBES[0], b"x")
    world.servers[0].roll(skip=0, ours=True)
    lived(world, TUBES[0], b"y")
    world.delete(job)
    world.servers[0].file(1).unlink()
    histories, messages = history_of(world)
    assert messages == []
    assert histories.stats.orphans == 1
    histories.close()


@pytest.mark.parametrize("size", [16_000, 16_384, 300_000, 1 << 20])
def test_bodies_of_any_size(tmp_path: Path, size: int) -> None:
    world = World(tmp_path, 1, history=True)
    server = world.servers[0]
    bodies = [bytes([65 + i]) * (size + i) for i in range(4)]
    jobs = [world.put(0, TUBES[0], body, 1, 0, 60) for body in bodies]
    server.roll(skip=0, ours=True)
    for job in reversed(jobs):
        world.delete(job)
    histories = JobHistories(topic_of, size + 2)
    follow(world, histories)
    messages = read_all(histories, 0, FINAL, 0)
    assert [one.body for one in messages] == [b"", *reversed(bodies[:3])]
    assert messages[0].properties["body-bytes"] == str(size + 3)
    assert histories.stats.left_out == 1
    histories.close()


def test_files_that_are_not_needed_are_not_held_open(tmp_path: Path) -> None:
    world = World(tmp_path, 1, history=True)
    server = world.servers[0]
    jobs = []
    for _ in range(3):
        jobs.append(world.put(0, TUBES[0], b"x", 1, 0, 60))
        server.roll(skip=0, ours=True)
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    read_all(histories, 0, server.number, server.size)
    for job in jobs:
        world.delete(job)
    assert read_all(histories, 0, server.number, server.size) == server.messages
    opened = {path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    assert [name for name in opened if name.startswith("binlog.")] == ["binlog.4"]
    histories.close()


# --- topics ---------------------------------------------------------------------------------------


def test_each_topic_is_asked_for_once_and_a_refusal_loses_nothing(tmp_path: Path) -> None:
    world = small(tmp_path)
    asked = []

    def topic(tube: bytes) -> bytes:
        asked.append(tube)
        if len(asked) == 2:
            raise KeyError(tube)
        return topic_of(tube) if len(asked) != 3 else b"x" * 256

    histories = JobHistories(topic, MOST_BODY)
    follow(world, histories)
    messages = unpack(histories.read(0, FINAL, 0, 1 << 20).items)
    assert len(messages) == 2
    with pytest.raises(ValueError, match="no topic"):
        histories.read(0, FINAL, 0, 1 << 20)
    assert messages + read_all(histories, 0, FINAL, 0) == world.servers[0].messages
    assert asked == [TUBES[0], TUBES[1], TUBES[1], TUBES[1]]
    histories.close()


@pytest.mark.slow
def test_more_tubes_than_have_a_number(tmp_path: Path) -> None:
    world = World(tmp_path, 1, history=False)
    for number in range(66_000):
        world.put(0, b"tube-%d" % number, b"x", 1, 0, 60)
    for job in list(world.live.values()):
        if job.id > 65_000 or job.id % 1000 == 0:
            world.delete(job)
    histories, messages = history_of(world)
    assert messages == world.servers[0].messages
    histories.close()


# --- what is kept ---------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    world = small(tmp_path)
    lived(world, TUBES[0], b"open")
    histories, _ = history_of(world)
    data = histories.save_checkpoint()
    with pytest.raises(ValueError, match="before anything is read"):
        histories.load_checkpoint(data)
    histories.close()
    for at in range(len(data)):
        histories = JobHistories(topic_of, MOST_BODY)
        for wrong in (data[:at], data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]):
            with pytest.raises(ValueError, match="damaged"):
                histories.load_checkpoint(wrong)
        histories.load_checkpoint(data)
        assert histories.save_checkpoint()
        histories.close()


def test_a_job_that_has_the_id_of_one_carried_in(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    world = World(old, 1, history=True)
    lived(world, TUBES[0], b"stale")
    histories, _ = history_of(world)
    data = histories.save_checkpoint()
    histories.close()
    world = World(new, 1, history=True)
    world.now += 99 * SECOND
    world.delete(lived(world, TUBES[0], b"fresh"))
    histories = JobHistories(topic_of, MOST_BODY)
    histories.add_folder(world.servers[0].path, "other")
    histories.load_checkpoint(data)
    (messages,) = read_all(histories, 0, FINAL, 0)
    assert messages.body == b"fresh"
    assert messages.properties["timeline"] == world.servers[0].messages[0].properties["timeline"]
    histories.close()


@pytest.mark.parametrize(("before", "after"), [(4, 12), (12, 4), (12, 3), (3, 500)])
def test_another_number_of_events_than_before(tmp_path: Path, before: int, after: int) -> None:
    world = World(tmp_path, 1, history=True)
    job = lived(world, TUBES[0], b"x")
    for _ in range(3):
        world.now += 9 * SECOND
        world.wake(job)
        world.reserve(job)
        world.release(job, 1, 0)
    whole = [*job.events]
    histories = JobHistories(topic_of, MOST_BODY, before)
    follow(world, histories)
    read_all(histories, 0, FINAL, 0)
    data = histories.save_checkpoint()
    size = world.servers[0].size
    histories.close()
    world.delete(job)
    whole = job.events
    histories = JobHistories(topic_of, MOST_BODY, after)
    follow(world, histories)
    histories.load_checkpoint(data)
    histories.set_checkpointed(0, 1, size)
    (messages,) = read_all(histories, 0, FINAL, 0)
    histories.close()
    shown = messages.properties["timeline"].split(";")
    (gap,) = [number for number, event in enumerate(shown) if event.startswith("...")]
    last = shown[gap + 1 :]
    assert shown[:gap] == whole[:gap]
    assert last == whole[-len(last) :]
    assert gap + len(last) + int(shown[gap].removeprefix("...")) == len(whole)
    assert min(before, after) - 1 <= gap + len(last) <= after


def test_jobs_go_on_in_other_folders_after_a_reshard(tmp_path: Path) -> None:
    world = World(tmp_path, 2, history=True)
    jobs = [lived(world, TUBES[0], b"body %d" % number, delay=number) for number in range(6)]
    jobs.append(world.put(0, TUBES[1], b"only put", 4, 0, 60))
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    read_all(histories, 0, FINAL, 0)
    data = histories.save_checkpoint()
    histories.close()
    for job in jobs:
        world.copy(job, index=1)
    shutil.rmtree(world.servers[0].path)
    for job in jobs:
        world.delete(job)
    histories = JobHistories(topic_of, MOST_BODY)
    histories.add_folder(world.servers[1].path, key_of(1))
    histories.load_checkpoint(data)
    assert read_all(histories, 0, FINAL, 0) == world.servers[1].messages
    assert histories.stats.open == 0
    histories.close()


def test_a_file_renamed_to_bad_and_not_needed_is_not_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, 1, history=True)
    server = world.servers[0]
    job = lived(world, TUBES[0], b"x")
    server.aside.add(1)
    server.roll(skip=0, ours=True)
    world.delete(job)
    server.roll(skip=0, ours=True)
    lived(world, TUBES[0], b"open")
    assert sorted(path.name for path in server.path.iterdir()) == [
        "binlog.1.bad",
        "binlog.2.done",
        "binlog.3",
    ]
    histories = JobHistories(topic_of, MOST_BODY)
    follow(world, histories)
    # It was renamed before the first read, so its jobs have no messages.
    assert read_all(histories, 0, 3, server.size) == []
    assert histories.needed_from(0) == 3
    assert histories.stats.open == 1
    histories.close()


# --- mistakes of the caller -----------------------------------------------------------------------


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        JobHistories(topic_of, 1, 1)
    histories = JobHistories(topic_of, 1)
    with pytest.raises(ValueError, match="UNIQ_KEY"):
        histories.add_folder(tmp_path, "a\x01")
    with pytest.raises(FileNotFoundError):
        histories.add_folder(tmp_path / "none", "a")
    with pytest.raises(OSError, match="Invalid"):
        histories.read(0, 1, 1, 1)
    assert histories.add_folder(tmp_path, "a") == 0
    assert histories.read(0, 5, 100, 1000).more is False
    assert histories.position(0) == (0, 0)
    assert histories.needed_from(0) == 0
    histories.close()
    histories.close()
