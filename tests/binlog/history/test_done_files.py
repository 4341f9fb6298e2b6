"""With a history, files that are no longer needed become done files for the archiver."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from binlog.disk import lay_out, numbers, take, wait_until
from binlog.reader import files, read_folder
from binlog.test_collection import FILE, delete, fill_files
from binlog.workload import Actor, check, run_steps
from cli.operator import Operator
from core import fault_injection
from core.fault_injection import Call
from core.rig import SECOND, Rig, RigClient, put_line
from servers import reference

from beanstalkd_py.binlog.layout import Layout
from beanstalkd_py.binlog.reshard import reshard
from beanstalkd_py.core.clocks import read_clocks
from beanstalkd_py.core.core import CoreConfig
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process.messages import ProcessConfig
from beanstalkd_py.server.worker.process import _core_config


def done_numbers(folder: Path) -> list[int]:
    """Return the N of every binlog.N.done."""
    return sorted(int(path.name.split(".")[1]) for path in folder.glob("binlog.*.done"))


def fill_and_delete(client: RigClient, count: int) -> None:
    """Fill this many files with jobs, and delete the jobs."""
    for jobs in fill_files(client, count).values():
        delete(client, jobs)


def used(folder: Path) -> list[int]:
    """A folder of a stopped server with done files."""
    with Rig(folder, file_size=FILE, history=True) as rig:
        fill_and_delete(rig.client(), 4)
        wait_until(lambda: len(done_numbers(folder)) >= 3)
        rig.stop()
    return done_numbers(folder)


def test_done_files_keep_every_entry(folder: Path) -> None:
    actor = Actor("whole", put_share=0.2)
    with Rig(folder, file_size=FILE, history=True) as rig:
        run_steps(actor, rig.client(), 300)
        written = rig.counters.records_written
        rig.stop()
    done = done_numbers(folder)
    assert len(done) > 3
    assert done + numbers(folder) == list(range(1, numbers(folder)[-1] + 1))
    whole = folder / "whole"
    handed = {f"binlog.{n}": (folder / f"binlog.{n}.done").read_bytes() for n in done}
    lay_out(whole, handed | take(folder))
    assert len([each for each in read_folder(whole) if not each.is_length_entry]) == written
    shutil.rmtree(whole)
    with Rig(folder, file_size=FILE, history=True) as rig:
        check([actor], rig)


def test_the_folder_is_synced_after_each_rename(folder: Path) -> None:
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        jobs = fill_files(client, 4)
        wait_until(lambda: rig.counters.binlog_current < numbers(folder)[-1])
        syncs, renames = fault_injection.count(Call.SYNC), fault_injection.count(Call.RENAME)
        unlinks = fault_injection.count(Call.UNLINK)
        delete(client, [job for some in jobs.values() for job in some])
        wait_until(lambda: done_numbers(folder)[:3] == [1, 2, 3])
        rig.stop()
    renamed = fault_injection.count(Call.RENAME) - renames
    assert renamed >= 3
    assert fault_injection.count(Call.SYNC) - syncs >= renamed
    assert fault_injection.count(Call.UNLINK) - unlinks <= 2, "more than unused preallocated files"


def damage(folder: Path) -> list[int]:
    """Put three jobs into binlog.1, and damage the first one; return their ids."""
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        jobs = [client.put(b"x" * 500) for _ in range(3)]
        rig.stop()
    data = bytearray((folder / "binlog.1").read_bytes())
    data[200] ^= 0xFF
    (folder / "binlog.1").write_bytes(data)
    return jobs


def test_a_damaged_file_is_done_and_kept_as_bad(folder: Path) -> None:
    jobs = damage(folder)
    data = (folder / "binlog.1").read_bytes()
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        delete(client, jobs[1:])
        fill_and_delete(client, 3)
        wait_until(lambda: 1 in done_numbers(folder))
        assert (folder / "binlog.1.bad").read_bytes() == data
        assert (folder / "binlog.1.bad").samefile(folder / "binlog.1.done")
        assert not (folder / "binlog.1").exists()


@pytest.mark.parametrize("kept", ["same", "other"])
def test_a_second_name_from_before_a_kill(folder: Path, kept: str) -> None:
    """A kill between the two names leaves the file with the second one; another file keeps its."""
    jobs = damage(folder)
    file, bad = folder / "binlog.1", folder / "binlog.1.bad"
    if kept == "same":
        bad.hardlink_to(file)
    else:
        bad.write_bytes(b"another")
    with Rig(folder, file_size=FILE, history=True) as rig:
        delete(rig.client(), jobs[1:])
        fill_and_delete(rig.client(), 3)
        wait_until(lambda: 1 in done_numbers(folder))
    assert sorted(each.name for each in folder.glob("binlog.1.bad*")) == (
        ["binlog.1.bad"] if kept == "same" else ["binlog.1.bad", "binlog.1.bad.1"]
    )


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSPC])
def test_a_damaged_file_without_a_second_name(folder: Path, error: int) -> None:
    """A file system may have no links. After any other error it is tried again."""
    jobs = damage(folder)
    with Rig(folder, file_size=FILE, history=True) as rig:
        fault_injection.fail(Call.LINK, error=error)
        delete(rig.client(), jobs[1:])
        fill_and_delete(rig.client(), 3)
        wait_until(lambda: (folder / "binlog.1.bad").exists() and len(done_numbers(folder)) >= 2)
        assert not (folder / "binlog.1").exists()
        assert (1 in done_numbers(folder)) == (error == errno.ENOSPC)


def test_numbers_are_not_reused(folder: Path) -> None:
    done = used(folder)
    for path in files(folder):
        path.rename(path.with_name(path.name + ".done"))
    done = done_numbers(folder)
    with Rig(folder, file_size=FILE, history=True) as rig:
        assert rig.counters.binlog_current == done[-1] + 1
        assert rig.warnings() == []


def test_a_rename_to_an_existing_name_overwrites_nothing(folder: Path) -> None:
    """C beanstalkd starts with 1 again if it finds no file of its own."""
    (folder / "binlog.2.done").write_bytes(b"of another program")
    (folder / "binlog.1").write_bytes(b"\x07\0\0\0")
    (folder / "binlog.2").write_bytes(b"\x07\0\0\0" + bytes(100))
    with Rig(folder, file_size=FILE, history=True) as rig:
        fill_and_delete(rig.client(), 2)
        wait_until(lambda: (folder / "binlog.2.done.1").exists())
    assert (folder / "binlog.2.done").read_bytes() == b"of another program"


@pytest.mark.parametrize("broken_first", [True, False])
def test_a_failed_rename_delays_the_later_ones(folder: Path, broken_first: bool) -> None:
    """As with removals: it is logged and retried, and no later file is renamed before it."""
    with Rig(folder, file_size=FILE, history=True) as rig:
        client = rig.client()
        jobs = fill_files(client, 4)
        wait_until(lambda: rig.counters.binlog_current < numbers(folder)[-1])
        waiting = list(jobs.values())
        if not broken_first:
            delete(client, waiting.pop(0))
            wait_until(lambda: done_numbers(folder) == [1])
        fault_injection.fail(Call.RENAME, nth=1, error=errno.EIO, lasting=True)
        delete(client, [job for some in waiting for job in some][:-1])

        def reported() -> bool:
            rig.tick()
            return any("cannot hand over a binlog file" in line for line in rig.warnings())

        wait_until(reported)
        assert done_numbers(folder) == ([] if broken_first else [1])
        fault_injection.heal()
        rig.advance(SECOND)  # a file that could not get its name is made again after 250 ms
        wait_until(lambda: client.ask(put_line(b"x")).startswith(b"INSERTED"))
        fill_and_delete(client, 3)
        wait_until(lambda: done_numbers(folder)[:4] == [1, 2, 3, 4])


# --- existing done files ---


def test_a_server_without_a_history_logs_how_to_remove_done_files(folder: Path) -> None:
    done = used(folder)
    size = sum((folder / f"binlog.{n}.done").stat().st_size for n in done)
    with Rig(folder, file_size=FILE) as rig:
        (line,) = rig.warnings()
        assert f"{len(done)}, with {size} bytes" in line
        assert "--history" in line and "remove" in line
        fill_and_delete(rig.client(), 3)
        wait_until(lambda: min(numbers(folder)) > done[-1] + 2)
        assert done_numbers(folder) == done
    with Rig(folder, file_size=FILE, history=True) as rig:
        assert rig.warnings() == []


def test_c_beanstalkd_and_the_tools_ignore_done_files(folder: Path) -> None:
    with Rig(folder, file_size=FILE, history=True, now=read_clocks()) as rig:
        client = rig.client()
        fill_and_delete(client, 4)
        kept = client.put(b"kept")
        wait_until(lambda: len(done_numbers(folder)) >= 3)
        rig.stop()
    done = done_numbers(folder)
    operator = Operator("")
    assert operator.try_("binlog", "verify", folder).status == 0
    stats = operator.try_("binlog", "stats", "--json", folder).json
    assert [row["file"] for row in stats["files"]] == [path.name for path in files(folder)]
    with reference("-b", folder, "-s", FILE) as server, server.connect() as client_of_c:
        assert client_of_c.ask(b"peek %d\r\n" % kept).endswith(b"\r\nkept\r\n")
        assert server.complaints() == ""
        assert client_of_c.put(b"more") > kept
    assert done_numbers(folder) == done
    assert operator.try_("binlog", "compact", folder).status == 0
    assert done_numbers(folder) == done
    assert min(numbers(folder)) > done[-1]
    with Rig(folder, file_size=FILE, history=True, now=read_clocks()) as rig:
        assert rig.client().body(kept) == b"kept"


def test_offline_compaction_does_not_reuse_numbers_of_done_files(folder: Path) -> None:
    with Rig(folder, file_size=FILE, history=True) as rig:
        rig.client().ask(b"put 0 0 9 1\r\nx\r\nreserve\r\ntouch 1\r\n")
        rig.stop()
    (folder / "binlog.9.done").write_bytes(b"\x07\0\0\0")
    assert Operator("").try_("binlog", "compact", folder).status == 0
    assert numbers(folder) == [10, 11]


def test_resharding_keeps_done_files(folder: Path) -> None:
    """Beside the shards or as shard-NNN.binlog.N.done, where the archiver does not look."""
    done = used(folder)
    first = (folder / "binlog.1.done").read_bytes()
    reshard(folder, Layout(3), FILE)
    assert done_numbers(folder) == done
    assert Operator("").try_("binlog", "verify", folder).status == 0
    (folder / "shard-002" / "binlog.1.done").write_bytes(b"of a shard")
    reshard(folder, Layout(2), FILE)
    reshard(folder, Layout(1), FILE)
    assert (folder / "binlog.1.done").read_bytes() == first
    assert (folder / "shard-002.binlog.1.done").read_bytes() == b"of a shard"


def test_a_worker_gets_its_configuration() -> None:
    options = ServeOptions(workers=1, file_size=FILE, history="/history")
    config = ProcessConfig(1, "", 0.0, 0, ["/folder"], options)
    received = ProcessConfig.decode(config.encode())
    assert _core_config(received) == CoreConfig("/folder", FILE, history=True)
