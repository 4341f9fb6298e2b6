"""Kill the driver of exports beside a working server: every entry is exported once."""

from __future__ import annotations

import time
from functools import partial

import pytest
from pipeline.drivers import Driver, kill_repeatedly, working_server
from pipeline.jobs.test_export import assert_no_row_twice, in_order, plain, wanted

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
FIRST_EXPORT = """
from beanstalkd_py.pipeline.jobs.export.job import export
begun = time.monotonic()
export(spark, sys.argv[1], sys.argv[2], bodies=True, batch_bytes=65536, compact_at=2)
with open(sys.argv[3], "w") as taken:
    taken.write(str(time.monotonic() - begun))
print("begun", flush=True)
time.sleep(60)
"""
"""Time limit of the first export of a new Java process, which is several times slower."""


def test_exports_during_writes_of_a_server(spark, folder, tmp_path):
    output, seen = tmp_path / "out", [0]
    with working_server(folder, seed=3):
        Driver(FIRST_EXPORT, folder, tmp_path / "scratch", tmp_path / "taken").kill()
        first_s = float((tmp_path / "taken").read_text())
        start = partial(Driver, EXPORTS, folder, output)
        for _ in kill_repeatedly(start, 5, seed=6, most_s=2 * first_s):
            assert_no_row_twice(output)
            seen.append(len(plain(output)))
    export(spark, str(folder), str(output), bodies=True, compact_at=2)
    assert in_order(plain(output)) == in_order(wanted(folder, bodies=True))
    assert len(set(seen)) > 2  # killed exports had written data


def test_two_exports_at_the_same_time(folder, tmp_path, spark):
    output = tmp_path / "out"
    with working_server(folder, seed=4):
        drivers = [Driver(CONTENDING_EXPORTS, folder, output) for _ in range(2)]
        for _ in range(4):
            time.sleep(10)
            assert_no_row_twice(output)
        for driver in drivers:
            driver.kill()
    export(spark, str(folder), str(output))
    assert in_order(plain(output)) == in_order(wanted(folder))
