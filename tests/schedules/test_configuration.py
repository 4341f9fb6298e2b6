"""Schedules in a configuration file: errors, values, and `config check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.commands import USAGE, assert_invalid_file, refusal, run

from beanstalkd_py.cli.server.serve import serve, serve_options
from beanstalkd_py.schedules.schedule import Schedule

CRON = 'cron = "0 2 * * *"\n'
GOOD = f'[schedule.nightly]\n{CRON}tube = "reports"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "tubes = 1", ["schedule.nightly", "unknown setting 'tubes'", "timezone"]),
        (f"[schedule.nightly]\n{CRON}", ["schedule.nightly", "missing setting 'tube'"]),
        ('[schedule.nightly]\ntube = "x"', ["schedule.nightly", "missing setting 'cron'"]),
        (GOOD.replace("0 2", "0 24"), ["schedule.nightly", "cron", "bad hour", "five fields"]),
        (GOOD.replace("0 2 * * *", "* * */20 * 1L"), ["cron", "no tick in 50 years"]),
        (GOOD + 'timezone = "Berlin"', ["timezone", "'Berlin'", "an IANA name"]),
        (GOOD.replace("reports", "a b"), ["schedule.nightly", "tube", "'a b'"]),
        (GOOD + "priority = -1", ["priority", "the minimum is 0"]),
        (GOOD + "priority = 4294967296", ["priority", "the maximum is 4294967295"]),
        (GOOD + "ttr = 0", ["ttr", "at least 1"]),
        (GOOD + 'delay = "0.5"', ["delay", "whole seconds"]),
        (GOOD + 'catch-up = "some"', ["catch-up", "'some'", "one, all, none"]),
        (GOOD + "body = true", ["body", "a string or an integer"]),
        (GOOD + "body = []", ["body", "a string or an integer"]),
        ('[schedule."a b"]\n', ['schedule."a b"', "invalid name"]),
        (f'[schedule."{"x" * 65}"]\n', ["invalid name", "1 to 64 letters"]),
        ("[schedule]\nnightly = 1", ["schedule.nightly", "must be a table"]),
        ("schedule = 1", ["schedule", "must be tables"]),
        (GOOD + GOOD, ["invalid TOML", "nightly"]),
    ],
)
def test_errors(tmp_path: Path, text: str, words: list[str]) -> None:
    assert_invalid_file(tmp_path / "file", text, words)


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "file"
    settings = {
        "timezone": "Europe/Berlin",
        "body": "Bücher\n",
        "priority": 5,
        "ttr": "5m",
        "delay": 7,
        "catch-up": "all",
    }
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    path.write_text(f'{GOOD}{lines}[schedule."a.b"]\n{CRON}tube = "default"\n')
    options = serve_options(serve.make_context("serve", ["--config", str(path)]))
    fields = ("Europe/Berlin", "Bücher\n", 5, 300, 7, "all")
    nightly = Schedule("nightly", "0 2 * * *", "reports", *fields)
    assert options.schedules == (nightly, Schedule("a.b", "0 2 * * *", "default"))
    shown = json.loads(run("config", "show", "--json", "--config", path).stdout)["schedule"]
    assert shown["from"] == "file"
    first = {"name": "nightly", "cron": "0 2 * * *", "tube": "reports"}
    assert shown["value"][0] == first | settings | {"ttr": 300}
    assert "2 schedules" in run("config", "show", "--config", path).stdout


@pytest.mark.costly
def test_check_and_start_report_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(GOOD + 'timezone = "Berlin"\n')
    checked = run("config", "check", path)
    assert (checked.returncode, checked.stderr.count("\n")) == (1, 1)
    assert "schedule.nightly: timezone: unknown time zone 'Berlin'" in checked.stderr
    assert "unknown time zone 'Berlin'" in refusal(USAGE, "serve", f"--config={path}")
    path.write_text(GOOD)
    assert run("config", "check", path).stdout == f"{path} is valid\n"


@pytest.mark.costly
def test_the_body_fits_into_a_job(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f'max-job-size = 5\n{GOOD}body = "ä1234"\n')
    text = "schedule.nightly: body has 6 bytes, more than max-job-size 5"
    checked = run("config", "check", path)
    assert (checked.returncode, checked.stderr.count("\n")) == (1, 1)
    assert text in checked.stderr
    assert text in refusal(USAGE, "serve", f"--config={path}")
    path.write_text(f'max-job-size = 6\n{GOOD}body = "ä1234"\n')
    assert run("config", "check", path).returncode == 0
    assert text in refusal(USAGE, "serve", f"--config={path}", "-z", "5")
