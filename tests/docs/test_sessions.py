"""The sessions and the Python examples of README, quickstarts and other documents work."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import prometheus_client
import pytest
from docs.documents import document, documents
from docs.sessions import AIRFLOW, PORT, run_session
from processes import eventually
from servers import free_port, ours
from wire import Client

from beanstalkd_py.client import Delivery, Finished, Outcome

SPARK_QUICKSTART = "docs/spark/quickstart.md"


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/schedules.md"])
def test_sessions_work_as_printed(name: str, tmp_path: Path) -> None:
    run_session(name, tmp_path)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_sessions_with_spark_work_as_printed(tmp_path: Path) -> None:
    run_session(SPARK_QUICKSTART, tmp_path, is_new=True)


class Task:
    """Stands for Airflow's DAG and BashOperator."""

    made: ClassVar[list[Task]] = []

    def __init__(self, *_: str, **given: Any) -> None:
        self.given = given
        self.made.append(self)

    def __enter__(self) -> Task:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __rshift__(self, later: Task) -> Task:
        return later


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_tasks_for_airflow_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands of the example, without Airflow."""
    for name in ("airflow.sdk", "airflow.providers.standard.operators.bash"):
        module: Any = types.ModuleType(name)
        module.DAG = module.BashOperator = Task
        monkeypatch.setitem(sys.modules, name, module)
    (code,) = (block.text for block in document(SPARK_QUICKSTART).blocks if AIRFLOW in block.text)
    exec(code, {})
    binlog = tmp_path / "host" / "binlog"
    binlog.mkdir(parents=True)
    with ours("-b", binlog) as server, server.connect() as client:
        put(client)
        commands = [task.given["bash_command"] for task in Task.made if "task_id" in task.given]
        assert len(commands) == 2
        for command in commands:
            program = f"{sys.executable} -m beanstalkd_py"
            there = command.replace("/srv", str(tmp_path)).replace("beanstalkd-py", program)
            subprocess.run(["bash", "-c", there], check=True, timeout=300)
    assert (tmp_path / "tables" / "entries" / "_delta_log").is_dir()
    assert "<html" in (tmp_path / "report.html").read_text()


def put(client: Client, body: bytes = b"a") -> None:
    assert client.ask(b"put 1 0 60 %d\r\n%b\r\n" % (len(body), body)).startswith(b"INSERTED")


def test_example_of_the_store_works(tmp_path: Path) -> None:
    (block,) = (one for one in document("docs/store-library.md").blocks if one.language == "python")
    code = block.text.replace("/var/lib/history", str(tmp_path / "history"))
    check = "assert len(found) == len(everything) == 1\n"
    subprocess.run([sys.executable, "-c", code + check], cwd=tmp_path, check=True)


def test_example_of_the_server_works(tmp_path: Path) -> None:
    blocks = (one for one in document("docs/api.md").blocks if one.language == "python")
    code = next(block.text for block in blocks if "serve(" in block.text)
    port = free_port()
    code = code.replace(PORT, str(port)).replace("/var/lib/beanstalkd", str(tmp_path))
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        server.terminate()
        assert b"ready" in line, line + server.stderr.read()
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("name", "index", "printed"),
    [
        ("README.md", 1, "[6]\n"),
        ("docs/client.md", 0, "1 60 6\n"),
        ("docs/client.md", 1, "[1, 2, 3]\n"),
    ],
)
def test_examples_of_clients_work(name: str, index: int, printed: str) -> None:
    blocks = [block for block in document(name).blocks if block.language == "python"]
    with ours() as server:
        code = blocks[index].text.replace(PORT, str(server.port))
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == (printed, "")


def test_example_of_the_worker_works(tmp_path: Path) -> None:
    blocks = [one for one in document("docs/client.md").blocks if one.language == "python"]
    code = next(block.text for block in blocks if "worker.run()" in block.text)
    with ours() as server:
        with Client(server.port) as client:
            client.ask(b"use mails\r\n")
            put(client, b"to=ann")
            put(client, b"nobody")
        script = tmp_path / "worker.py"
        script.write_text(code.replace(PORT, str(server.port)))
        command = [sys.executable, script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            assert worker.stderr is not None
            assert worker.stdout.readline() == b"sent to=ann\n"
            with Client(server.port) as client:
                client.ask(b"use mails\r\n")
                buried = b"peek-buried\r\n"
                assert eventually(lambda: client.ask(buried).startswith(b"FOUND"), 10)
            worker.terminate()
            assert worker.wait(10) == 0
            assert b"no recipient" in worker.stderr.read()


def test_hooks_of_the_example_work() -> None:
    blocks = [one for one in document("docs/client.md").blocks if one.language == "python"]
    code = next(block.text for block in blocks if "def measure" in block.text)
    found: dict[str, Any] = {}
    exec(code, found)
    delivery = Delivery(1, "mails", b"", 0, 60, 1)
    outcome = Outcome.DELETED
    found["measure"](Finished(delivery, outcome, 0.5))
    text = prometheus_client.generate_latest(found["JOBS"]).decode()
    assert 'jobs_seconds_sum{outcome="deleted",tube="mails"} 0.5' in text


def test_imports_in_examples_work() -> None:
    imports = {
        (one.name, found)
        for one in documents()
        for block in one.blocks
        if block.language == "python"
        for found in re.findall(r"^(?:from \S+ )?import .*$", block.text, re.MULTILINE)
        if AIRFLOW not in found
    }
    assert len(imports) > 5
    for name, statement in sorted(imports):
        try:
            exec(statement, {})
        except ImportError as error:
            pytest.fail(f"{name}: {statement}: {error}")
