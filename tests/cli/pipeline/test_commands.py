"""`beanstalkd-py pipeline` as a program: output and exit statuses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.operator import Operator
from core.rig import Rig, put_line
from pipeline.other_python import bare_python, python_for_spark
from processes import children, eventually

NO_SERVER = Operator("127.0.0.1:1")
JOBS = 30


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a binlog of one worker with some jobs."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "binlog"
        path.mkdir()
        with Rig(path, file_size=4096) as rig:
            client = rig.client()
            for job in range(JOBS):
                client.send(put_line(b"%d" % job))
            client.ask(b"delete 3\r\n")
        yield path


def test_prepare_needs_a_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no HOME and no user
    error = NO_SERVER.fail(2, "pipeline", "prepare")
    assert error.endswith("no home folder for the archive; set HOME or XDG_CACHE_HOME")


def result(*words: object, **environment: str) -> tuple[int, bytes, list[str]]:
    """Return status, stdout and lines on stderr, without progress."""
    command = [sys.executable, "-m", "beanstalkd_py", "pipeline", *map(str, words)]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, timeout=500, check=False
    )
    lines = ended.stderr.decode().splitlines()
    return ended.returncode, ended.stdout, [line for line in lines if "of this stage" not in line]


# --- without Spark -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["run"], ["sql"], ["report"], ["package"], ["prepare"]])
def test_help_needs_no_spark(words, tmp_path):
    (tmp_path / "pyspark.py").write_text("raise ImportError('not here')")
    status, out, errors = result(*words, "--help", PYTHONPATH=str(tmp_path))
    assert (status, errors) == (0, [])
    assert out.startswith(b"Usage: ")


def test_missing_pyspark_is_one_line(tmp_path, folder):
    (tmp_path / "pyspark.py").write_text("raise ImportError('not here')")
    status, out, errors = result("run", "verify", "-i", folder, PYTHONPATH=str(tmp_path))
    assert (status, out) == (2, b"")
    assert errors == [
        (
            "beanstalkd-py: the pipeline needs PySpark; pip install 'beanstalkd_py[spark]'"
            " installs it (not here)"
        )
    ]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_missing_java_is_one_line(tmp_path, folder):
    words = ("run", "verify", "-i", folder)
    status, _, errors = result(*words, JAVA_HOME=str(tmp_path))
    assert (status, len(errors)) == (2, 1)
    assert f"JAVA_HOME is {tmp_path}, which has no bin/java; set it to Java 17" in errors[0]
    status, _, errors = result(*words, JAVA_HOME="", PATH=str(tmp_path))
    assert (status, len(errors)) == (2, 1)
    assert "cannot find Java, which Spark needs; install Java 17" in errors[0]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_failing_java_is_one_line(tmp_path, folder):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\necho 'Error: java.lang.UnsupportedClassVersionError: 61' >&2\nexit 1"
    )
    java.chmod(0o755)
    words = ("run", "verify", "-i", folder)
    status, _, errors = result(*words, JAVA_HOME=str(tmp_path))
    assert status == 2
    assert errors == [
        (
            "beanstalkd-py: this Java is too old for Spark; install Java 17, such as the package"
            " openjdk-17-jre-headless"
        )
    ]
    java.write_text(
        "#!/bin/sh\necho 'Picked up a setting' >&2\necho 'Invalid heap size: 3g' >&2\nexit 1"
    )
    status, _, errors = result(*words, JAVA_HOME=str(tmp_path))
    assert status == 1
    assert errors == ["beanstalkd-py: cannot start Spark: Invalid heap size: 3g"]
    java.write_text(
        "#!/bin/sh\necho 'Exception in thread: a\n at a.b\nCaused by: c: x\n at d' >&2\nexit 1"
    )
    status, _, errors = result(*words, JAVA_HOME=str(tmp_path))
    assert (status, errors) == (1, ["beanstalkd-py: cannot start Spark: c: x"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "nonsense", "-i", "x"], "'nonsense' is not one of"),
        (["run", "verify"], "missing option -i/--input"),
        (["run", "verify", "-i", "x", "--from", "1d"], "job verify has no options --from and --to"),
        (
            ["run", "timelines", "-i", "x", "--window", "1 hour"],
            "timelines has no option --window",
        ),
        (
            ["run", "binlog-health", "-i", "x", "--tube", "a"],
            "binlog-health has no option --tube",
        ),
        (
            ["run", "timelines", "-i", "x", "--from", "1h", "--to", "2h"],
            "--from is not before --to",
        ),
        (["run", "timelines", "-i", "x", "--format", "orc"], "--format orc requires --output"),
        (["run", "timelines", "-i", "x", "--overwrite"], "--overwrite requires --output FOLDER"),
        (["run", "timelines", "-i", "x", "-o", "y", "--limit", "3"], "--limit applies to stdout"),
        (["run", "timelines", "-i", "x", "-o", "y", "--json"], "--json writes to stdout"),
        (["run", "export", "-i", "x"], "export requires --output FOLDER"),
        (["run", "export", "-i", "x", "-o", "y", "--overwrite"], "omit --overwrite"),
        (["sql", "-i", "x"], "missing argument QUERY"),
        (["package", "-o", "beanstalkd-py.tar"], "ends in .zip"),
    ],
)
def test_usage_errors_are_one_line(words, text):
    assert text in NO_SERVER.fail(2, "pipeline", *words)


def test_invalid_spark_property(folder):
    result = NO_SERVER.fail(2, "pipeline", "run", "verify", "-i", folder, "--conf", "memory=3g")
    assert (
        result == "'memory=3g' is not a setting of Spark; give one such as spark.driver.memory=4g"
    )


# --- with Spark --------------------------------------------------------------------------------


QUERY = "select host, id, tube, state, put_at, events from timelines order by id"


@pytest.fixture(scope="module")
def table(folder: Path) -> tuple[int, bytes, list[str]]:
    return result("sql", "-i", folder, "--json", QUERY)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_stderr_has_no_lines_of_spark(table):
    status, out, errors = table
    assert status == 0, errors
    states = Counter(json.loads(line)["state"] for line in out.splitlines())
    assert states == {"deleted": 1, "ready_or_reserved": JOBS - 1}
    assert len(errors) == 1
    assert errors[0].startswith(f"beanstalkd-py: {JOBS} rows in ")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_prepare_makes_an_archive_that_later_commands_use(tmp_path, folder):
    loads = tmp_path / "loads"
    environment = {"XDG_CACHE_HOME": str(tmp_path / "a cache"), "SPARK_SUBMIT_OPTS": ""}
    status, out, errors = result("prepare", **environment)
    assert (status, out) == (0, b"")
    (archive,) = (tmp_path / "a cache" / "beanstalkd-py").iterdir()
    assert errors == [f"beanstalkd-py: wrote {archive}; {archive.stat().st_size / 1e6:.0f} MB"]
    environment["SPARK_SUBMIT_OPTS"] = f"-Xlog:class+load:file={loads}"
    status, _, _ = result("sql", "-i", folder, "select 1", **environment)
    assert status == 0
    assert "org.apache.spark.SparkContext source: shared objects file (top)" in loads.read_text()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_prepare_fails_if_java_cannot_write_an_archive(tmp_path):
    """Without the report that takes the classes, because Java refuses at its start."""
    (tmp_path / "spark-env.sh").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_SUBMIT_OPTS": ""}
    program = (
        "import beanstalkd_py.pipeline.report.page as page; page.write_report = lambda *_: None;"
        "import beanstalkd_py.cli.main as cli; cli.main(['pipeline', 'prepare'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    errors = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout, len(errors)) == (2, "", 1), errors
    assert "Java wrote no archive" in errors[0]
    assert not (tmp_path / "cache").exists()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_invalid_sql_is_one_line(folder):
    status, out, errors = result("sql", "-i", folder, "select nothing from entries")
    assert (status, out, len(errors)) == (2, b"", 1)
    assert "`nothing` cannot be resolved" in errors[0]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_failfast_stops_at_damage(folder, tmp_path):
    place = tmp_path / "binlog"
    place.mkdir()
    for file in folder.glob("binlog.*"):
        data = bytearray(file.read_bytes())
        if file.name == "binlog.1":
            data[300] ^= 1
        (place / file.name).write_bytes(data)
    words = ("run", "timelines", "-i", place, "--mode", "failfast", "-o", tmp_path / "out")
    status, _, errors = result(*words)
    assert (status, len(errors)) == (1, 1)
    assert errors[0].startswith(f"beanstalkd-py: {place}/binlog.1:")
    assert "unreadable entry" in errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["binlog"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_ctrl_c_is_one_line(folder, tmp_path):
    """While tasks run: this query would take days."""
    query = (
        "select count(*) from range(100000000) a cross join range(100000000) b where a.id = -b.id"
    )
    # A test run in the background ignores SIGINT, which children inherit.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "beanstalkd_py"]
    command += ["pipeline", "sql", "-i", str(folder), query]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert eventually(lambda: _runs_tasks(process.pid), 120)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    lines = [line for line in errors.decode().splitlines() if "of this stage" not in line]
    lines = [line for line in lines if line]  # an empty line closes the ^C of a terminal
    assert lines == ["beanstalkd-py: interrupted"]


def _runs_tasks(pid: int) -> bool:
    """Whether the JVM of a command has threads `Executor task launch worker`."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for child in children(pid):
            threads = Path(f"/proc/{child}/task").glob("*/comm")
            if any(thread.read_text().startswith("Executor task") for thread in threads):
                return True
    return False


# --- on a cluster ------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_package_is_the_same_file_each_time(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    for path in (first, second):
        NO_SERVER.do("pipeline", "package", "--output", path)
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert "pyspark_beanstalkd_binlog.py" in names
    assert not [name for name in names if name.endswith(".pyc")]
    assert sorted(tmp_path.iterdir()) == [first, second]


@pytest.mark.costly
def test_a_package_includes_the_decoder(tmp_path, folder):
    """A Python without any packages, not even cffi, imports it from the zip."""
    package = tmp_path / "package.zip"
    NO_SERVER.do("pipeline", "package", "--output", package)
    program = (
        "import sys, beanstalkd_py.pipeline._columns as decoder; import beanstalkd_py.cli.main;"
        "print(decoder.__file__); print(sys.modules['_cffi_backend'].__file__)"
    )
    environment = {"PYTHONPATH": str(package), "TMPDIR": str(tmp_path), "PYTHONSAFEPATH": "1"}
    for _ in range(2):  # the second run finds it unpacked
        command = [bare_python(tmp_path), "-c", program]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        places = [Path(line) for line in ended.stdout.split()]
        (own,) = tmp_path.glob("beanstalkd_py-*")
        assert all(place.is_relative_to(own) for place in places)
        assert own.stat().st_mode & 0o077 == 0
        assert len(list(own.iterdir())) == 1


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_machine_whose_name_does_not_resolve(folder):
    """Only root can name a machine. With keys of AWS, which other tests leave, Spark needs it."""
    script = 'hostname no-such-machine && exec "$@"'
    command = ["unshare", "--uts", "sh", "-c", script, "sh", sys.executable, "-m", "beanstalkd_py"]
    command += ["pipeline", "sql", "-i", str(folder), "--json", "select 1 as one"]
    without = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(command, env=without, capture_output=True, timeout=200, check=False)
    assert (ended.returncode, ended.stdout) == (0, b'{"one":1}\n'), ended.stderr
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    ended = subprocess.run(
        command, env={**without, **keys}, capture_output=True, timeout=200, check=False
    )
    error = (
        "beanstalkd-py: cannot start Spark: the name of this machine, no-such-machine, has no"
        " address; add it to /etc/hosts\n"
    )
    assert (ended.returncode, ended.stderr.decode()) == (2, error)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_cluster_without_beanstalkd_py_has_the_same_results(tmp_path, folder, table):
    """Run this command, which sends the package itself, and spark-submit."""
    python = python_for_spark(tmp_path)
    _, expected, _ = table
    assert len(expected.splitlines()) == JOBS
    master = ("--master", "local-cluster[2,1,1024]")
    status, out, errors = result(
        "sql", "-i", folder, "--json", *master, QUERY, PYSPARK_PYTHON=python
    )
    assert (status, len(errors)) == (0, 1)
    assert out == expected

    package, program = tmp_path / "beanstalkd-py.zip", tmp_path / "pipeline.py"
    NO_SERVER.do("pipeline", "package", "--output", package)
    program.write_text(
        "import sys\nfrom beanstalkd_py.cli.main import main\nmain(['pipeline', *sys.argv[1:]])\n"
    )
    (site,) = Path(python).parents[1].glob("lib/python*/site-packages")
    command = [site / "pyspark/bin/spark-submit", *master, "--py-files", package, program]
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    ended = subprocess.run(
        [*map(str, command), "sql", "-i", str(folder), "--json", QUERY],
        env={**environment, "PYTHONPATH": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    # Includes the stderr of Python.
    lines = [line for line in ended.stdout.splitlines(keepends=True) if line.startswith(b"{")]
    assert b"".join(lines) == expected
