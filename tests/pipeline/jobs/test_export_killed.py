"""Kill the driver of exports beside a working server: every entry is exported once."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from pipeline.drivers import Driver, kill_repeatedly, working_server
from pipeline.jobs.test_export import assert_no_row_twice, in_order, plain, wanted
from processes import eventually

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.job import export

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 4
EXPORTS = """
from beanstalkd_py.pipeline.jobs.export.job import export
print("begun", flush=True)
while True:
    export(spark, sys.argv[1], sys.argv[2], bodies=True, batch_bytes=65536, compact_at=2)
"""
CONTENDING_EXPORTS = """
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.job import export
print("begun", flush=True)
while True:
    try:
        export(spark, sys.argv[1], sys.argv[2], batch_bytes=65536, compact_at=3)
    except PipelineUsageError as error:
        assert "another export writes to" in str(error), error
        open(sys.argv[3], "w").close()
"""


def test_exports_during_writes_of_a_server(spark, folder, tmp_path):
    output, seen = tmp_path / "out", [0]

    def has_new_rows() -> bool:
        return len(plain(output)) > seen[-1]

    moments = [has_new_rows, lambda: True, has_new_rows]
    with working_server(folder, seed=3):
        start = partial(Driver, EXPORTS, folder, output)
        for _ in kill_repeatedly(start, moments, seed=6, most_s=2.0):
            assert_no_row_twice(output)
            seen.append(len(plain(output)))
    export(spark, str(folder), str(output), bodies=True, compact_at=2)
    assert in_order(plain(output)) == in_order(wanted(folder, bodies=True))


def test_two_exports_at_the_same_time(folder, tmp_path, spark):
    """One in another process. An export is overtaken if the other one adds rows meanwhile."""
    output, overtaken = tmp_path / "out", tmp_path / "overtaken"
    rounds = itertools.count(1)

    def have_contended() -> bool:
        try:
            export(spark, str(folder), str(output), compact_at=3)
        except PipelineUsageError as error:
            assert "another export writes to" in str(error)
            overtaken.touch()
        assert_no_row_twice(output)
        return next(rounds) >= ROUNDS and overtaken.exists()

    with working_server(folder, seed=4):
        driver = Driver(CONTENDING_EXPORTS, folder, output, overtaken)
        assert eventually(have_contended, 240)
        driver.kill()
    export(spark, str(folder), str(output))
    assert in_order(plain(output)) == in_order(wanted(folder))
