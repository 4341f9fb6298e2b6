"""The Python of Spark's tasks, when the first python3 of the path is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from core.rig import Rig, put_line
from pipeline.other_python import python_for_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from beanstalkd_py import pipeline
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(pipeline.read_binlog(spark, sys.argv[1]).count())
pipeline.register(spark)
print(spark.read.format("beanstalkd_binlog").load(sys.argv[1]).count())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "binlog"
    path.mkdir()
    with Rig(path) as rig:
        rig.client().send(put_line(b"a") + put_line(b"b"))
    return path


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return an environment whose python3 does not work."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    return {**kept, "PATH": f"{other.parent}:{os.environ['PATH']}", **more}


def test_tasks_run_the_python_of_the_driver(folder, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.stdout.split() == ["2", "2"], ended.stderr[-3000:]


def command(folder: Path, env: dict[str, str]) -> tuple[int, list[str]]:
    words = ["-m", "beanstalkd_py", "pipeline", "run", "timelines", "-i", str(folder)]
    ended = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=500, check=False
    )
    lines = ended.stderr.splitlines()
    return ended.returncode, [line for line in lines if "of this stage" not in line]


def test_a_wrong_python_is_one_line(folder, tmp_path):
    given = environment(tmp_path)
    status, errors = command(folder, {**given, "PYSPARK_PYTHON": "/nowhere/python3"})
    assert (status, len(errors)) == (2, 1)
    assert "PYSPARK_PYTHON is /nowhere/python3, which is no program" in errors[0]
    status, errors = command(folder, {**given, "PYSPARK_PYTHON": python_for_spark(tmp_path)})
    assert (status, len(errors)) == (2, 1)
    assert "Python has no beanstalkd_py; on this machine leave PYSPARK_PYTHON out" in errors[0]
