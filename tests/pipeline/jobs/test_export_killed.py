"""Kill the driver of exports beside a working server: every entry is exported once."""

from __future__ import annotations

from functools import partial

import pytest
from pipeline.drivers import Driver, kill_repeatedly, working_server
from pipeline.jobs.test_export import assert_no_row_twice, in_order, plain, wanted
from processes import eventually

from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs.export.job import export

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

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
    """One in another process, until each has committed during a run of the other one."""
    output, outcomes = tmp_path / "out", set()

    def have_both_committed() -> bool:
        try:
            outcomes.add(export(spark, str(folder), str(output), compact_at=3).rows > 0)
        except PipelineUsageError as error:
            assert "another export writes to" in str(error)
            outcomes.add("overtaken")
        assert_no_row_twice(output)
        return outcomes >= {True, "overtaken"}

    with working_server(folder, seed=4):
        driver = Driver(CONTENDING_EXPORTS, folder, output)
        assert eventually(have_both_committed, 240)
        driver.kill()
    export(spark, str(folder), str(output))
    assert in_order(plain(output)) == in_order(wanted(folder))
