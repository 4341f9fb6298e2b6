"""`history export` to Parquet, and --filter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli.operator import Operator
from history.finished import finished, make_store

MESSAGES = [finished(number, "mails" if number % 2 else "a/b") for number in range(60)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("export") / "store", MESSAGES)


@pytest.fixture
def operator(store: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("BEANSTALKD_HISTORY", str(store))
    return Operator("127.0.0.1:1")


def body_of(row: dict[str, str]) -> bytes:
    import base64

    return row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a/b"],
        ["--from", "2025-11-21T04:40:10", "--to", "2025-11-21T04:40:30"],
        ["mails", "--filter", "pri<=10", "--filter", "tag=deleted"],
        ["--filter", "key=17"],
        ["--filter", "key=999"],
    ],
)
def test_parquet_has_what_json_lines_have(
    operator: Operator, tmp_path: Path, words: list[str]
) -> None:
    rows = operator.do("history", "export", *words).json_lines
    target = tmp_path / "out.parquet"
    result = operator.do("history", "export", "--format", "parquet", "-o", str(target), *words)
    assert operator.do("history", "export", "--json", *words).json_lines == rows
    assert result.out == b""
    files, size = "1 file", target.stat().st_size
    messages = "1 message" if len(rows) == 1 else f"{len(rows)} messages"
    assert result.errors == [f"wrote {messages} to {target}; {files}, {size} bytes"]
    table = pq.read_table(target).to_pylist()
    same = ("tube", "topic", "offset", "size", "message_id", "keys", "tags", "queue_offset")
    assert [[row[name] for name in same] for row in table] == [
        [row[name] for name in same] for row in rows
    ]
    assert [row["body"] for row in table] == [body_of(row) for row in rows]
    assert [dict(row["properties"]) for row in table] == [row["properties"] for row in rows]
    times = [row["stored_at"].isoformat(timespec="milliseconds")[:-6] + "Z" for row in table]
    assert times == [row["stored_at"] for row in rows]


def test_filter_in_every_command(operator: Operator) -> None:
    expected = [
        number
        for number, message in enumerate(MESSAGES)
        if number % 2 and int(message.properties["timeouts"]) > 0
    ]
    assert 0 < len(expected) < 30
    words = ("mails", "--filter", "timeouts>0")
    listed = operator.do("history", "ls", "--json", *words).json_lines
    assert [int(row["keys"][0]) for row in listed] == expected
    exported = operator.do("history", "export", *words).json_lines
    assert exported == listed
    assert operator.do("history", "ls", "--json", "--limit", 1, *words).json_lines == listed[:1]


def test_a_folder_of_files(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    words = ("history", "export", "--format", "parquet", "--file-rows", 25, "-o", str(folder))
    operator.do(*words)
    parts = [f"part-{number:05d}.parquet" for number in range(3)]
    assert sorted(path.name for path in folder.iterdir()) == ["_SUCCESS", *parts]
    counts = [pq.ParquetFile(folder / part).metadata.num_rows for part in parts]
    assert counts == [25, 25, 10]
    assert pq.read_table(folder)["job_id"].to_pylist() == list(range(60))
    assert "already has Parquet files" in operator.fail(2, *words)
    other = f"{tmp_path / 'one'}/"
    operator.do("history", "export", "--format", "parquet", "-o", other, "mails")
    assert pq.read_table(other)["job_id"].to_pylist() == list(range(1, 60, 2))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-o", "x"], "require --format parquet"),
        (["--format", "parquet"], "requires --output PATH"),
        (
            ["--format", "parquet", "-o", "/proc/none/x.parquet"],
            "cannot write /proc/none/x",
        ),
        (["--format", "parquet", "-o", "/dev/null", "--file-rows", "3"], "/dev/null is a file"),
        (["--format", "parquet", "--json"], "exclude each other"),
        (["--format", "orc"], "option --format: 'orc' is not one of"),
        (["--filter", "3"], "option --filter: '3' is no condition"),
        (["--filter", "size>x", "nope"], "option --filter: 'size>x': 'x' is no number"),
        (["nope", "--format", "parquet", "-o", "x"], "'nope'; 'topics' lists all"),
    ],
)
def test_usage_error_is_one_line(
    operator: Operator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = operator.try_("history", "export", *words)
    assert (result.status, result.out, len(result.errors)) == (2, b"", 1)
    assert what in result.errors[0]
    assert list(tmp_path.iterdir()) == []


def test_missing_pyarrow_is_one_line(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    line = operator.fail(2, "history", "export", "--format", "parquet", "-o", str(tmp_path / "x"))
    assert line.startswith("Parquet requires PyArrow; run pip install 'beanstalkd_py[parquet]'")
    assert operator.do("history", "export").json_lines


def test_nothing_else_imports_pyarrow(store: Path) -> None:
    code = """
import sys
from beanstalkd_py.cli import main
try:
    main.main(["history", "export", "mails"])
except SystemExit as ended:
    assert not ended.code
heavy = {"pyarrow", "rich", "gevent"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "BEANSTALKD_HISTORY": str(store)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 30


def test_the_shell_completes_tubes_of_the_store(store: Path) -> None:
    environment = {
        **os.environ,
        "BEANSTALKD_HISTORY": str(store),
        "_BEANSTALKD_PY_COMPLETE": "bash_complete",
        "COMP_WORDS": "beanstalkd-py history replay ma",
        "COMP_CWORD": "3",
    }
    command = [sys.executable, "-m", "beanstalkd_py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["plain,mails"]
