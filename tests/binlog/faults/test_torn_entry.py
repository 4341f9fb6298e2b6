"""The first entry of a file is torn, and no entry before it shows which program wrote the file.

A short entry with missing zeros looks like a delete by C beanstalkd: state 0, no counters.
"""

from __future__ import annotations

from pathlib import Path

from binlog.disk import lay_out, take
from binlog.reader import HEADER, SHORT, read_file
from core.rig import Rig

FILE = 4096


def test_a_torn_first_entry_deletes_no_job(folder: Path) -> None:
    """An earlier file has the acknowledged job; the torn entry was never acknowledged."""
    with Rig(folder, file_size=FILE) as rig:
        client = rig.client()
        jobs = [client.put(b"kept" * 100) for _ in range(8)]
        assert client.job(jobs[-1])["file"] == "1"
        for job in jobs:  # until a bury is the first entry of the second file
            client.bury(job)
            second = folder / "binlog.2"
            if second.exists() and any(second.read_bytes()[HEADER:]):
                break
    first = read_file(folder / "binlog.2")[0]
    assert (first.id, first.full, first.offset) == (job, False, HEADER)
    contents = take(folder)
    whole = contents["binlog.2"]
    for size in range(SHORT):
        torn = whole[: HEADER + size] + bytes(len(whole) - HEADER - size)
        lay_out(folder, {"binlog.1": contents["binlog.1"], "binlog.2": torn})
        with Rig(folder, file_size=FILE) as rig:
            assert rig.client().body(job) == b"kept" * 100, (
                f"{size} bytes of the entry deleted the job"
            )
