"""`dead-letters` and signatures of bodies."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline.jobs.made import log_reader, made

from beanstalkd_py import pipeline
from beanstalkd_py.errors import PipelineUsageError
from beanstalkd_py.pipeline.jobs import dead_letters as job
from beanstalkd_py.pipeline.jobs import timelines as timelines_job
from beanstalkd_py.pipeline.jobs.body_signature import LENGTH, NAMES, sample, signature
from beanstalkd_py.pipeline.jobs.dead_letters import bodies_of, dead_letters
from beanstalkd_py.pipeline.jobs.timelines import timelines

spark_test = pytest.mark.spark
timeout = pytest.mark.timeout(300)

Row = dict[str, Any]
FORMS = {
    "mail": "type=mail {data, template, to, type}",
    "thumbnail": "type=thumbnail {data, image, type, width}",
    "webhook": "type=webhook {attempt, data, type, url}",
    "invoice": "type=invoice {customer, data, month, type}",
    "report": "type=report {account, data, pages, type}",
    "legacy-import": "type=legacy-import {column, data, row, type}",
}


# --- against the log ---------------------------------------------------------------------------


def inputs(spark: Any, name: str, columns: tuple[str, ...] = ()) -> tuple[Any, Any]:
    wanted = list(dict.fromkeys((*timelines_job.COLUMNS, *columns)))
    path = str(made(name).binlog)
    job_timelines = timelines(pipeline.read_binlog(spark, path, columns=wanted, host="h"))
    bodies = pipeline.read_binlog(spark, path, columns=list(job.BODY_COLUMNS), host="h")
    return job_timelines, bodies_of(bodies)


def expected_groups(name: str, timeouts: int, monkeypatch: pytest.MonkeyPatch) -> dict[Any, Row]:
    """Group the jobs of the log by tube and kind of body."""
    log_reader(monkeypatch)
    from workloadlib.event_log import read_log
    from workloadlib.job_log import read_job_log

    job_log = read_job_log(made(name).log)
    kinds = {line["id"]: line["type"] for line in read_log(made(name).log) if "type" in line}
    groups: dict[Any, Row] = {}
    for number in job_log.packed:
        logged = job_log.job(number)
        last = logged.events[-1]
        timed_out = last.counters[1]
        buried = last.state == "buried"
        if not buried and timed_out < timeouts:
            continue
        empty = dict.fromkeys(("jobs", "buried", "timed_out", "buries", "timeouts", "kicks"), 0)
        group = groups.setdefault((logged.tube, kinds[number]), {**empty, "ids": []})
        group["jobs"] += 1
        group["buried"] += buried
        group["timed_out"] += timed_out >= timeouts
        group["timeouts"] += timed_out
        group["buries"] += last.counters[3]
        group["kicks"] += last.counters[4]
        group["ids"].append(number)
    return groups


@spark_test
@timeout
@pytest.mark.parametrize("name", ["ours", "history", "c"])
def test_groups_match_the_log(spark, monkeypatch, name):
    """A signature may divide a kind of small bodies; it never joins two."""
    often = 1 if name == "history" else 2  # no other event implies a timeout
    expected = expected_groups(name, often, monkeypatch)
    found: dict[Any, Row] = {}
    for row in dead_letters(*inputs(spark, name), timeouts=often).collect():
        assert row.host == "h"
        kind = kind_of(row.signature)
        group = found.setdefault((row.tube, kind), {"ids": []})
        for count in ("jobs", "buried", "timed_out", "buries", "timeouts", "kicks"):
            group[count] = group.get(count, 0) + row[count]
        group["ids"].append(row.sample_id)
        assert row.first_put_at <= row.last_event_at
    assert found.keys() == expected.keys()
    for key, group in found.items():
        assert set(group.pop("ids")) <= set(expected[key].pop("ids"))
        assert group == expected[key], key
    assert sum(group["buried"] for group in found.values()) > 20
    assert any(group["timed_out"] for group in found.values()) or name != "history"


def kind_of(found: str) -> str:
    if found.startswith("ping"):
        return "ping"
    return next(kind for kind, form in FORMS.items() if form.split(" ")[0] == found.split(" ")[0])


@spark_test
@timeout
def test_samples_and_times_match_the_jobs(spark, monkeypatch):
    job_timelines, bodies = inputs(spark, "ours")
    now = datetime(2100, 1, 1, tzinfo=UTC)
    by_id = {row.id: row for row in job_timelines.collect()}
    kept = {row.id: bytes(row.body) for row in bodies.collect()}
    dead = [row for row in by_id.values() if row.state == "buried" or row.timeouts >= 3]
    groups: dict[Any, list[Any]] = {}
    for row in dead:
        groups.setdefault((row.tube, signature(kept[row.id])), []).append(row)
    found = dead_letters(job_timelines, bodies, now=now).collect()
    assert [row.jobs for row in found] == sorted((row.jobs for row in found), reverse=True)
    assert {(row.tube, row.signature) for row in found} == groups.keys()
    for row in found:
        group = groups[row.tube, row.signature]
        first = min(group, key=lambda each: (each.put_at, each.id))
        assert (row.jobs, row.sample_id) == (len(group), first.id)
        assert row.sample_body == kept[first.id][:200].decode()
        assert row.first_put_at == first.put_at
        assert row.last_event_at == max(each.last_at for each in group)
        put_at = datetime.fromtimestamp(first.put_at.timestamp(), UTC)
        assert row.oldest_s == (now - put_at) / timedelta(seconds=1)
        assert row.timeouts == sum(each.timeouts for each in group)


@spark_test
@timeout
def test_jobs_without_a_body_are_a_group(spark):
    """Ages are those at the last event of all jobs."""
    job_timelines, bodies = inputs(spark, "ours")
    alive = {row.id for row in job_timelines.where("state = 'buried'").collect()}
    rows = dead_letters(job_timelines, bodies.where("id % 2 = 0"), timeouts=10**9).collect()
    assert sum(row.jobs for row in rows) == len(alive)
    gone = [row for row in rows if row.signature is None]
    assert sum(row.jobs for row in gone) == sum(number % 2 for number in alive)
    assert all(row.sample_body is None and row.sample_id % 2 for row in gone)
    last = max(row.last_at for row in job_timelines.collect())
    for row in rows:
        assert row.oldest_s == (last - row.first_put_at) / timedelta(seconds=1)


@spark_test
@timeout
def test_invalid_arguments_are_rejected(spark):
    job_timelines, bodies = inputs(spark, "ours")
    with pytest.raises(PipelineUsageError, match="timeouts is 0; give at least 1"):
        dead_letters(job_timelines, bodies, timeouts=0)
    with pytest.raises(PipelineUsageError, match="has no time zone"):
        dead_letters(job_timelines, bodies, now=datetime(2026, 1, 1))
    assert dead_letters(job_timelines.where("false"), bodies).collect() == []


# --- signatures --------------------------------------------------------------------------------

LARAVEL = {
    "uuid": "0c9f6a3e-97a2-4a0e-8c19-1c2a3b4c5d6e",
    "displayName": "App\\Jobs\\SendMail",
    "job": "Illuminate\\Queue\\CallQueuedHandler@call",
    "maxTries": None,
    "data": {"commandName": "App\\Jobs\\SendMail", "command": 'O:17:"App\\Jobs\\SendMail":0:{}'},
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            json.dumps(LARAVEL),
            "displayName=App\\Jobs\\SendMail {data, displayName, job, maxTries, uuid}",
        ),
        ('{"class":"MailJob","args":[1]}', "class=MailJob {args, class}"),
        (
            '{"class":"ActiveJob::Wrapper","wrapped":"MailJob","args":[{"job_class":"X"}]}',
            "wrapped=MailJob {args, class, wrapped}",
        ),
        (
            '{"job_class":"MailJob","job_id":"7","queue_name":"q"}',
            "job_class=MailJob {job_class, job_id, queue_name}",
        ),
        ('{"to": 1, "type": {"a": 1}}', "{to, type}"),
        ('{"type": "", "name": "user 17"}', "name=user N {name, type}"),
        ('{"17": 1, "18": 2}', "{N}"),
        (" {} ", "{}"),
        ('{"type": "order \\ud800", "x\\udc00": 1}', "type=order \ufffd {type, x\ufffd}"),
        ('{"type": "\\ud83d\\ude00"}', "type=\U0001f600 {type}"),
        ("[1, 2, 30]", "[N, N, N]"),
        ('{"broken": 12', '{"broken": N'),
        ("", ""),
        ("ping 000042....", "ping N...."),
        ("resize /img/17.png\r\n  to 640x480", "resize /img/N.png to NxN"),
        ("run 0c9f6a3e-97a2-4a0e-8c19-1c2a3b4c5d6e now", "run H now"),
        ("sha 9f86d081884c7d659a2feaa0c55ad015", "sha H"),
        ("12345678 deadbeef facade1 decade12", "N deadbeef facadeN H"),
        ("token " + "Zm9vYmFy" * 9 + "==", "token L"),
        ('O:8:"App\\Mail":2:{s:5:"\0*\0to";s:1:"a"}', "PHP App\\Mail"),
        (b"\x80\x04\x95", "binary, up to 4 bytes"),
        (b"\0" * 5, "binary, up to 8 bytes"),
        (b"\0" * 8, "binary, up to 8 bytes"),
        (b"\0", "binary, up to 1 bytes"),
        ("Grüße an 3 Leute", "Grüße an N Leute"),
        ("a b " * 50, "a b " * 19 + "a b…"),
    ],
)
def test_signatures_keep_the_common_parts(body, expected):
    assert signature(body if isinstance(body, bytes) else body.encode()) == expected


def test_jobs_of_one_kind_have_one_signature():
    bodies = [
        json.dumps({**LARAVEL, "uuid": f"{n:08x}-97a2-4a0e-8c19-1c2a3b4c5d6e", "data": {"n": n}})
        for n in range(100)
    ]
    assert len({signature(body.encode()) for body in bodies}) == 1
    assert len({signature(b"import row %d of %d" % (n, n * 7)) for n in range(100)}) == 1


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_body_has_a_short_signature_and_a_sample(body):
    found = signature(body)
    assert len(found) <= 2 * LENGTH + max(map(len, NAMES)) + len("= {}")
    assert found == signature(bytes(body))
    assert len(sample(body)) <= 200


def test_a_deeply_nested_body_is_text():
    assert signature(b'{"a":' * 100_000) == '{"a":' * 15 + '{"a"…'


@given(st.text(min_size=1, max_size=300))
def test_a_sample_is_the_start_of_the_body(text):
    body = text.encode()
    found = sample(body)
    assert text.startswith(found)
    assert len(found.encode()) > min(len(body), 200) - 4


def test_a_sample_replaces_invalid_bytes():
    assert sample(b"ab\xffcd") == "ab\ufffdcd"
