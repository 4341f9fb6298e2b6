"""Settings of a session: defaults, tuning to small inputs, and what overrides them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beanstalkd_py.pipeline import class_archive, session
from beanstalkd_py.pipeline.session import (
    JAVA_OPTIONS,
    QUICK_JAVA,
    SparkOptions,
    are_small,
    settings_of,
)

PARTS = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of classes would be; it does not exist."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return class_archive.archive_path()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in {"a/binlog.1": 600, "a/binlog.2": 300, "b/shard-000/binlog.1": 200}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    return tmp_path


@pytest.mark.parametrize(
    ("names", "is_small"),
    [
        (["a"], True),
        (["b"], True),
        (["a", "b"], False),
        (["*"], False),
        (["{a,b}"], False),
        (["a/binlog.1"], True),
        (["nothing"], False),
        ([], False),
    ],
)
def test_inputs_are_small_up_to_a_limit(folder, monkeypatch, names, is_small):
    monkeypatch.setattr(session, "SMALL_BYTES", 1000)
    assert are_small([str(folder / name) for name in names]) is is_small


def test_other_file_systems_are_not_small(folder):
    assert are_small([f"file://{folder}/a"])
    assert not are_small(["s3a://bucket/binlog"])
    assert not are_small([str(folder / "a"), "s3a://bucket/binlog"])


def test_holes_have_no_size(folder):
    os.truncate(folder / "a" / "binlog.1", 1 << 40)
    assert are_small([str(folder)])


def test_settings_of_small_inputs(folder):
    small = SparkOptions.of("local[3]", [], is_quiet=True, inputs=[str(folder)])
    usual = SparkOptions.of("local[3]", [], is_quiet=True)
    assert settings_of(small, {}).items() >= {JAVA_OPTIONS: QUICK_JAVA, PARTS: "3"}.items()
    assert settings_of(usual, {})[PARTS] == "48"
    assert JAVA_OPTIONS not in settings_of(usual, {})


def test_an_archive_of_classes_is_used_on_this_machine(folder, archive):
    small = SparkOptions.of("local[3]", [], is_quiet=True, inputs=[str(folder)])
    usual = SparkOptions.of("local[3]", [], is_quiet=True)
    cluster = SparkOptions.of("spark://host:7077", [], is_quiet=True)
    archive.parent.mkdir(parents=True)
    archive.touch()
    option = f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off'
    assert settings_of(small, {})[JAVA_OPTIONS] == f"{QUICK_JAVA} {option}"
    assert settings_of(usual, {})[JAVA_OPTIONS] == option
    assert JAVA_OPTIONS not in settings_of(cluster, {})


def test_given_settings_override_tuning(folder):
    given = [f"{JAVA_OPTIONS}=-Xss2m", f"{PARTS}=7"]
    options = SparkOptions.of(None, given, is_quiet=True, inputs=[str(folder)])
    found = settings_of(options, {})
    assert (found[JAVA_OPTIONS], found[PARTS]) == ("-Xss2m", "7")
    submitted = {"spark.master": "spark://host:7077", PARTS: "9"}
    options = SparkOptions.of(None, [], is_quiet=True, inputs=[str(folder)])
    found = settings_of(options, submitted)
    assert found[PARTS] == "9"
    assert JAVA_OPTIONS not in found
