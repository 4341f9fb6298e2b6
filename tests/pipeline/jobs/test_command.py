"""`beanstalkd-py pipeline` with a Spark session."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from binlog.reader import files, number_of, read_file
from cli.operator import Operator
from core.rig import Rig, put_line
from pipeline.plain import is_highest_id

from beanstalkd_py.binlog.dump import dump
from beanstalkd_py.binlog.folders import inspect_folder
from beanstalkd_py.core.binlog_reader import Selection
from beanstalkd_py.pipeline import session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOOLS = Path(__file__).resolve().parents[3] / "tools"
Row = dict[str, Any]


@dataclass(frozen=True)
class Made:
    folder: Path
    kinds: dict[int, list[str]]
    tubes: dict[int, str]
    states: dict[int, str]

    @property
    def binlog(self) -> Path:
        return self.folder / "binlog"

    @property
    def history(self) -> Path:
        return self.folder / "history"


@pytest.fixture(scope="module")
def made(remote: Path) -> Iterator[Made]:
    folder = remote / "made"
    folder.mkdir()
    log = folder / "log.jsonl"
    command = [sys.executable, TOOLS / "workload", "--jobs=300", "--seed=3", "--profile=failing"]
    command += ["--keep-files", "--tubes=4", f"--log={log}", "--truncate=1", "--binlog-size=64K"]
    command += [f"--binlog-dir={folder}/binlog", f"--history={folder}/history"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    subprocess.run(command, env=environment, check=True, timeout=100, capture_output=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        from workloadlib.job_log import read_job_log

        job_log = read_job_log(log)
    jobs = {job: job_log.job(job) for job in job_log.packed}
    yield Made(
        folder,
        {job: job_log.kinds(job) for job in jobs},
        {job: logged.tube for job, logged in jobs.items()},
        {job: logged.events[-1].state for job, logged in jobs.items()},
    )
    shutil.rmtree(folder)


@pytest.fixture
def operator(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Run commands with the shared session, because starting another takes long."""

    @contextlib.contextmanager
    def shared(options: session.SparkOptions) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
    session._silence()
    return Operator("127.0.0.1:1")


def run(operator: Operator, job: str, *words: object) -> list[Row]:
    return operator.do("pipeline", "run", job, "--json", *map(str, words)).json_lines


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- jobs --------------------------------------------------------------------------------------


def test_a_job_in_a_binlog_and_in_a_store_counts_once(operator, made):
    both = run(operator, "timelines", "-i", made.binlog, "-i", made.history)
    binlog = run(operator, "timelines", "-i", made.binlog)
    history = run(operator, "timelines", "-i", made.history)
    assert 0 < len(history) < len(binlog)
    for rows in (both, binlog):
        assert len(rows) == len(made.kinds)
        assert {row["id"]: row["tube"] for row in rows} == made.tubes
        assert {row["id"]: row["state"] for row in rows} == made.states
        kinds = {row["id"]: [event["event"] for event in row["events"]] for row in rows}
        assert kinds == made.kinds
    assert {row["id"] for row in history} == {
        job for job, state in made.states.items() if state == "deleted"
    }
    # As in the store, which has no shards.
    ended = {row["id"] for row in history}
    assert [row for row in both if row["id"] in ended] == history


def test_inputs_of_another_file_system(operator, made):
    local = run(operator, "timelines", "-i", made.binlog, "-i", made.history)
    there = "viewfs://test/remote/made"
    remote = run(operator, "timelines", "-i", f"{there}/binlog", "-i", f"{there}/history")
    for row in local + remote:
        del row["host"]
    assert remote == local


def test_tube_metrics(operator, made):
    rows = run(operator, "tube-metrics", "-i", made.binlog, "--window", "1 second")
    puts: Counter[str] = Counter()
    for row in rows:
        puts[row["tube"]] += row["puts"]
    assert puts == Counter(made.tubes.values())
    assert rows == sorted(rows, key=lambda row: (row["tube"], row["window_start"]))
    last = {row["tube"]: row["depth"] for row in rows}
    there = Counter(made.tubes[job] for job, state in made.states.items() if state != "deleted")
    assert last == {tube: there[tube] for tube in puts}


def test_tube_metrics_of_a_span(operator, made):
    words = ("tube-metrics", "-i", made.binlog, "--window", "100 milliseconds")
    every = run(operator, *words)
    times = sorted({row["window_start"] for row in every})
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    some = run(operator, *words, "--from", begin, "--to", end)
    assert some == [row for row in every if begin < row["window_end"] and row["window_start"] < end]
    assert 0 < len(some) < len(every)


def test_dead_letters(operator, made):
    rows = run(operator, "dead-letters", "-i", made.binlog, "--timeouts", 2)
    timed_out = {job for job, kinds in made.kinds.items() if kinds.count("timeout") >= 2}
    buried = {job for job, state in made.states.items() if state == "buried"}
    assert sum(row["jobs"] for row in rows) == len(timed_out | buried)
    assert sum(row["buried"] for row in rows) == len(buried) > 0
    assert all(row["signature"] for row in rows)
    tube = rows[0]["tube"]
    of_tube = run(operator, "dead-letters", "-i", made.binlog, "--timeouts", 2, "--tube", tube)
    names = ("signature", "jobs", "buried", "sample_id")
    assert [[row[name] for name in names] for row in of_tube] == [
        [row[name] for name in names] for row in rows if row["tube"] == tube
    ]
    # Perhaps only the store has the bodies of finished jobs.
    ended = run(operator, "dead-letters", "-i", made.history, "--timeouts", 1)
    assert sum(row["jobs"] for row in ended) == sum(
        "timeout" in kinds for job, kinds in made.kinds.items() if made.states[job] == "deleted"
    )
    assert all(row["signature"] for row in ended)


def test_binlog_health_counts_the_entries_of_a_dump(operator, made):
    rows = run(operator, "binlog-health", "-i", made.binlog)
    lines: list[bytes] = []
    dump(
        inspect_folder(made.binlog), Selection(as_json=True), lambda text: lines.append(bytes(text))
    )
    dumped_lines = map(json.loads, b"".join(lines).splitlines())
    entries = Counter(line["file"] for line in dumped_lines if not is_highest_id(line))
    assert {row["file"]: row["entries"] for row in rows} == entries
    assert len(rows) > 1


def test_verify_exits_with_1_after_a_violation(operator, made, tmp_path):
    outcome = operator.do("pipeline", "run", "verify", "-i", str(made.binlog), "--json")
    assert outcome.out == b""
    for shard in ("shard-000", "shard-001"):
        (tmp_path / shard).mkdir()
        shutil.copy(made.binlog / "binlog.1", tmp_path / shard / "binlog.1")
    outcome = operator.try_("pipeline", "run", "verify", "-i", str(tmp_path), "--json")
    assert outcome.status == 1
    assert {row["file"] for row in outcome.json_lines} == {"binlog.1"}
    assert operator.try_("pipeline", "run", "verify", "-i", str(tmp_path)).status == 1


def test_verify_exits_with_0_without_violations(made):
    command = [sys.executable, "-m", "beanstalkd_py", "pipeline", "run", "verify"]
    outcome = subprocess.run(
        [*command, "--input", str(made.binlog)], capture_output=True, text=True, timeout=120
    )
    lines = outcome.stderr.splitlines()
    assert outcome.returncode == 0, outcome.stderr
    assert all(line.startswith("beanstalkd-py: ") for line in lines)
    assert lines[-1].startswith("beanstalkd-py: 0 rows in ")


def test_jobs_of_binlogs_reject_stores(operator, made):
    text = operator.fail(2, "pipeline", "run", "verify", "-i", str(made.history))
    assert text == f"job verify reads binlogs, and {made.history} is a history store"


def test_timelines_of_a_span_and_of_tubes(operator, made):
    every = run(operator, "timelines", "-i", made.binlog)
    times = sorted(moment(row["put_at"]) for row in every)
    begin, end = times[len(times) // 3], times[-1]
    tubes = sorted(set(made.tubes.values()))[:2]
    some = run(
        *(operator, "timelines", "-i", made.binlog, "--from", begin.isoformat()),
        *("--to", end.isoformat(), "--tube", tubes[0], "--tube", tubes[1]),
    )
    assert some == [
        row
        for row in every
        if moment(row["put_at"]) < end
        and (row["end_at"] is None or moment(row["end_at"]) >= begin)
        and row["tube"] in tubes
    ]
    assert 0 < len(some) < len(every)


# --- damage ------------------------------------------------------------------------------------

FAULTS = 4


@pytest.fixture(scope="module")
def damaged(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the binlog with damaged entries in two files."""
    folder = Path(shutil.copytree(made.binlog, tmp_path_factory.mktemp("damaged") / "binlog"))
    for path in (folder / "binlog.1", folder / "binlog.2"):
        entries, data = read_file(path), bytearray(path.read_bytes())
        for entry in entries[1 : FAULTS + 1 : 2]:
            data[entry.offset + 30] ^= 1
        path.write_bytes(data)
    return folder


COMMANDS = {
    "timelines": ["run", "timelines"],
    "timelines-json": ["run", "timelines", "--json"],
    "timelines-folder": ["run", "timelines", "-o", "OUT"],
    "tube-metrics": ["run", "tube-metrics"],
    "dead-letters": ["run", "dead-letters"],
    "binlog-health": ["run", "binlog-health"],
    "verify": ["run", "verify"],
    "export": ["run", "export", "-o", "OUT"],
    "report": ["report", "-o", "OUT"],
    "sql-of-entries": ["sql", "select count(*) from entries"],
    "sql-of-a-job": ["sql", "select count(*) from dead_letters"],
    "sql-join": ["sql", "select 1 from entries a join entries b on a.id = b.id"],
    "sql-subquery": ["sql", "select (select count(*) from entries) n"],
}


def of_command(words: list[str], binlog: Path, folder: Path, *more: object) -> list[object]:
    given = [folder / "out" if word == "OUT" else word for word in words]
    return ["pipeline", given[0], "-i", binlog, *more, *given[1:]]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_exits_with_1_after_damage(operator, damaged, tmp_path, name):
    outcome = operator.try_(*of_command(COMMANDS[name], damaged, tmp_path))
    assert outcome.status == 1
    assert outcome.errors[-1] == (
        f"skipped {FAULTS} damaged places; 'binlog verify' and 'history verify' list them"
    )
    assert outcome.out or list(tmp_path.iterdir()) or name == "verify"


@pytest.mark.parametrize(
    "words", [["run", "verify"], ["sql", "select 1 from entries where id < 0"]]
)
def test_damage_without_a_row_in_the_result(operator, folder, words):
    """Spark removes what else a query reads when a part of it has no rows."""
    with Rig(folder, file_size=4096) as rig:
        rig.client().send(put_line(b"x" * 200) * 30)
    data = bytearray((folder / "binlog.2").read_bytes())
    data[400] ^= 1
    (folder / "binlog.2").write_bytes(data)
    outcome = operator.try_(*of_command(words, folder, folder))
    assert (outcome.status, outcome.errors[-1].partition(";")[0]) == (1, "skipped 1 damaged place")


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"verify", "report"}))
def test_each_command_accepts_damage_with_dropmalformed(operator, damaged, tmp_path, name):
    """The job verify still finds the violations that damage leaves."""
    mode = ("--mode", "dropmalformed")
    outcome = operator.do(*of_command(COMMANDS[name], damaged, tmp_path, *mode))
    assert not any("damaged" in line for line in outcome.errors)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_exits_with_0_without_damage(operator, made, tmp_path, name):
    outcome = operator.do(*of_command(COMMANDS[name], made.binlog, tmp_path))
    assert not any("damaged" in line for line in outcome.errors)


def test_damage_of_a_store_beside_a_binlog_counts_once(operator, made, tmp_path):
    store = Path(shutil.copytree(made.history, tmp_path / "history"))
    log = min((store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[int.from_bytes(data[:4], "big") + 100] ^= 1  # in the second message
    log.write_bytes(data)
    outcome = operator.try_("pipeline", "run", "timelines", "-i", made.binlog, "-i", store)
    assert outcome.status == 1
    assert outcome.errors[-1].startswith("skipped 1 damaged place; ")
    assert len(outcome.lines) > 1


def test_a_torn_last_entry_is_not_damage(operator, made, tmp_path):
    copy = Path(shutil.copytree(made.binlog, tmp_path / "copy"))
    *_, last = (path for path in files(copy) if read_file(path))
    for path in files(copy):
        if number_of(path) > number_of(last):
            path.unlink()
    os.truncate(last, read_file(last)[-1].offset + 30)
    for words in (["run", "timelines"], ["sql", "select count(*) from entries"]):
        operator.do(*of_command(words, copy, tmp_path))


# --- forms -------------------------------------------------------------------------------------


def files_of(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.glob(f"part-*{ending}*"))


def read_back(folder: Path, form: str) -> list[Row]:
    """Read files without Spark, with values as in JSON."""
    if form in ("parquet", "orc"):
        rows = ds.dataset([str(path) for path in files_of(folder, form)], format=form).to_table()
        return json.loads(json.dumps(rows.to_pylist(), default=_as_text))
    if form == "json":
        return [
            json.loads(line)
            for path in files_of(folder, form)
            for line in path.read_text().splitlines()
        ]
    return [row for path in files_of(folder, form) for row in from_csv(path.read_text())]


def _as_text(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.isoformat(timespec="microseconds").replace("+00:00", "") + "Z"


def from_csv(text: str) -> list[Row]:
    return [
        {name: json.loads(value) if name == "events" else value for name, value in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def as_csv(row: Row) -> Row:
    """Convert a row of JSON to cells; only text is compared."""
    return {name: row[name] for name in ("host", "tube", "put_at", "state", "events")} | {
        "id": str(row["id"]),
        "end": row["end"] or "",
        "complete": str(row["complete"]).lower(),
    }


def by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
def test_a_folder_of_files(operator, made, tmp_path, form):
    expected = by_id(run(operator, "timelines", "-i", made.binlog))
    words = ("pipeline", "run", "timelines", "-i", str(made.binlog), "--format", form)
    out = tmp_path / "out"
    outcome = operator.do(*words, "-o", str(out))
    assert outcome.out == b""
    *_, line = outcome.errors
    assert line.startswith(f"wrote {len(expected)} rows to {out} in ")
    if form == "parquet":
        assert types_of_times(files_of(out, form)[0]) == {"INT64"}
    found = by_id(read_back(out, form))
    if form == "csv":
        expected = [as_csv(row) for row in expected]
        found = [{name: row[name] for name in expected[0]} for row in found]
    assert found == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def types_of_times(path: Path) -> set[str]:
    """Return how Parquet stores the times of a file."""
    schema = pq.ParquetFile(path).schema
    columns = [schema.column(number) for number in range(len(schema))]
    times = [each for each in columns if each.path.endswith(("_at", ".at"))]
    assert len(times) > 3
    return {each.physical_type for each in times}


def test_csv_on_stdout(operator, made):
    outcome = operator.do("pipeline", "run", "timelines", "-i", made.binlog, "--format", "csv")
    expected = [as_csv(row) for row in run(operator, "timelines", "-i", made.binlog)]
    found = from_csv(outcome.out.decode())
    assert [{name: row[name] for name in expected[0]} for row in found] == expected


ODD_TEXTS = """select /*+ coalesce(1) */ * from values
    (1, ' lead'), (2, 'trail '), (3, ''), (4, null), (5, 'a,b'), (6, '"'), (7, 'x\ny'), (8, ' '),
    (9, '\t'), (10, '\0') as odd(n, text)"""


def test_csv_escapes_text(operator, made, tmp_path):
    words = ("pipeline", "sql", "-i", str(made.binlog), "--format", "csv", ODD_TEXTS)
    operator.do(*words, "-o", str(tmp_path / "out"))
    in_files = "".join(path.read_text() for path in files_of(tmp_path / "out", "csv"))
    on_stdout = operator.do(*words, "--limit", "none").out.decode()
    texts = [" lead", "trail ", "", "", "a,b", '"', "x\ny", " ", "\t", "\0"]
    for text in (in_files, on_stdout):
        found = {int(row["n"]): row["text"] for row in csv.DictReader(io.StringIO(text))}
        assert [found[n] for n in range(1, 11)] == texts
        assert '3,""\n' in text and "4,\n" in text


def test_a_table_has_the_first_rows(operator, made):
    words = ("pipeline", "run", "timelines", "-i", str(made.binlog))
    outcome = operator.do(*words, "--limit", 3)
    assert len(outcome.lines) == 4
    assert outcome.lines[0].split()[:4] == ["host", "id", "tube", "put_at"]
    assert outcome.errors[0].startswith("3 rows in ")
    assert outcome.errors[0].endswith("; use --limit none to print all rows")
    outcome = operator.do(*words, "--limit", "none")
    assert len(outcome.lines) == 1 + len(made.kinds)
    assert "--limit none" not in outcome.errors[0]
    outcome = operator.do(*words, "--json", "--limit", 2)
    assert outcome.json_lines == run(operator, "timelines", "-i", made.binlog)[:2]


def test_an_output_is_replaced_atomically(operator, made, tmp_path):
    words = ("pipeline", "run", "timelines", "-i", str(made.binlog), "--format", "json")
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")
    text = operator.fail(2, *words, "-o", str(out))
    assert text == f"output {out} exists; give another folder, or --overwrite"
    text = operator.fail(2, *words, "-o", str(out), "--overwrite")
    assert text.startswith(f"output {out} has files that are not a result")
    (out / "_SUCCESS").touch()
    text = operator.fail(2, *words, "-o", str(out), "--overwrite")
    assert text.startswith(f"output {out} has files that are not a result")
    (out / "old").rename(out / "part-old")
    broken = tmp_path / "broken"
    broken.mkdir()
    data = bytearray((made.binlog / "binlog.1").read_bytes())
    data[400] ^= 1
    (broken / "binlog.1").write_bytes(data)
    strict = ("pipeline", "run", "timelines", "-i", str(broken), "--mode", "failfast")
    text = operator.fail(1, *strict, "-o", str(out), "--overwrite")
    assert "binlog.1:" in text
    assert {path.name for path in out.iterdir()} == {"part-old", "_SUCCESS"}
    link = tmp_path / "link"
    link.symlink_to(out)
    for output in (out, link):
        operator.do(*words, "-o", str(output), "--overwrite")
        assert not (out / "part-old").exists()
        assert len(read_back(out, "json")) == len(made.kinds)
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "broken", "link"}
    # An input in the folder of results is not a result.
    copy = shutil.copytree(made.binlog, out / "copy")
    inside = ("pipeline", "run", "timelines", "-i", str(copy))
    text = operator.fail(2, *inside, "-o", str(out), "--overwrite")
    assert text.startswith(f"output {out} has files that are not a result")
    assert (copy / "binlog.1").exists()


def test_an_output_on_another_file_system(operator, made, remote):
    words = ("pipeline", "run", "timelines", "-i", str(made.binlog), "--format", "json")
    operator.do(*words, "-o", "viewfs://test/remote/elsewhere")
    assert len(read_back(remote / "elsewhere", "json")) == len(made.kinds)


def test_an_export_continues(operator, made, tmp_path):
    words = ("pipeline", "run", "export", "-i", str(made.binlog), "-o", str(tmp_path / "out"))
    *_, line = operator.do(*words).errors
    assert line.startswith("added ")
    *_, line = operator.do(*words).errors
    assert line.startswith(f"added 0 rows to {tmp_path}/out in ")


# --- SQL ---------------------------------------------------------------------------------------


def sql(operator: Operator, made: Made, query: str, *words: str) -> list[Row]:
    inputs = ("-i", str(made.binlog), "-i", str(made.history))
    return operator.do("pipeline", "sql", *inputs, "--json", *words, query).json_lines


def test_sql(operator, made):
    (row,) = sql(operator, made, "select count(*) n, count(distinct host) h from timelines")
    assert row == {"n": len(made.kinds), "h": 1}
    rows = sql(operator, made, "select e.id, length(e.body) n, e.body_size from entries e"
               " where kind = 'full'")  # fmt: skip
    assert rows
    assert all(row["n"] == row["body_size"] for row in rows)
    ended = sum(state == "deleted" for state in made.states.values())
    query = "select (select count(*) from messages) m, (select count(*) from queues) q"
    assert sql(operator, made, query) == [{"m": ended, "q": ended}]
    (row,) = sql(operator, made, "select count(*) n from index_entries")
    assert row["n"] >= ended
    (row,) = sql(operator, made, "select sum(puts) n from tube_metrics")
    assert row == {"n": len(made.kinds)}


def test_duplicate_column_names_get_a_suffix(operator, made):
    query = "select t.id, t.id, e.ID, 'a' a from entries e join timelines t on e.id = t.id limit 1"
    (row,) = sql(operator, made, query)
    assert list(row) == ["id", "id_2", "ID_3", "a"] and row["id"] == row["id_2"] == row["ID_3"]


def test_words_in_strings_and_comments_make_no_views(operator, made):
    query = """select count(*) n from messages where tags = 'entries' or tags = "verify" """
    outcome = operator.do("pipeline", "sql", "-i", str(made.history), "--json", query)
    assert outcome.json_lines == [{"n": 0}]


def test_an_input_is_never_overwritten(operator, made, tmp_path):
    copy = Path(shutil.copytree(made.binlog, tmp_path / "copy"))
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    words = ("pipeline", "run", "timelines", "-i", str(copy), "--overwrite")
    for output in (copy, tmp_path):
        text = operator.fail(2, *words, "-o", str(output))
        assert text.startswith(f"output {output} has files that are not a result")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_verify_reports_unreadable_files(operator, made, tmp_path):
    copy = Path(shutil.copytree(made.binlog, tmp_path / "copy"))
    victim = max(copy.iterdir(), key=lambda path: path.stat().st_size)
    with victim.open("r+b") as data:
        data.seek(2000)
        data.write(b"\xff" * 100)
    outcome = operator.try_("pipeline", "run", "verify", "-i", str(copy))
    assert outcome.status == 1
    assert any("skipped " in line for line in outcome.errors)


@pytest.mark.parametrize("job", ["verify", "timelines"])
def test_a_folder_without_binlogs_is_an_error(operator, remote, tmp_path, job):
    (remote / "nothing" / "deep").mkdir(parents=True, exist_ok=True)
    for path in (str(tmp_path), "viewfs://test/remote/nothing"):
        text = operator.fail(2, "pipeline", "run", job, "-i", path)
        assert "has no binlog files; give a binlog folder" in text


def test_costly_columns_need_to_be_named(operator, made):
    (row,) = sql(operator, made, "select * from entries limit 1")
    assert "body" not in row and "id" in row
    (row,) = sql(operator, made, "select *, body is null nobody from messages limit 1")
    assert "body" in row and "properties" not in row


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select x from timelines", "`x` cannot be resolved"),
        ("select * from nowhere", "`nowhere` cannot be found"),
        ("selec 1", "Syntax error at or near 'selec'"),
        ("select 1/0", "Division by zero"),
        ("select id / (id - id) from timelines", "Division by zero"),
        ("select cast(tube as int) from timelines", "because it is malformed"),
        ("select to_timestamp(tube) from timelines", "because it is malformed"),
        ("select (select id from timelines)", "ore than one row"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"], ["-o", "{out}"]], ids=["table", "json", "files"])
def test_invalid_queries(operator, made, tmp_path, query, text, form):
    words = [word.format(out=tmp_path / "out") for word in form]
    outcome = operator.fail(2, "pipeline", "sql", "-i", str(made.binlog), query, *words)
    assert text in outcome and "org.apache" not in outcome


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-i", "/no/where"], "path /no/where does not exist"),
        (["-i", "viewfs://test/remote/no"], "path viewfs://test/remote/no does not exist"),
        (["-i", "{made}/*"], "matches history stores and other folders"),
        (["-i", "{made}/log.jsonl"], "is not a binlog file"),
    ],
)
def test_invalid_inputs(operator, made, words, text):
    words = [word.format(made=made.folder) for word in words]
    assert text in operator.fail(2, "pipeline", "run", "timelines", *words)


def test_a_view_without_inputs(operator, made):
    query = ("select * from messages",)
    text = operator.fail(2, "pipeline", "sql", "-i", str(made.binlog), *query)
    assert text == "the view messages needs history stores; give one by --input PATH"


def test_a_report(operator, made, tmp_path):
    out = tmp_path / "report.html"
    inputs = ("-i", str(made.binlog), "-i", str(made.history))
    *_, line = operator.do("pipeline", "report", *inputs, "-o", str(out)).errors
    assert line.startswith(f"wrote {out} in ")
    assert "</html>" in out.read_text()
