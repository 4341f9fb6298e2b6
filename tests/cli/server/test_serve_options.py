"""The command line of `serve`: valid values, and one-line errors."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import BIND, FOLDER, USAGE, refusal, run
from processes import eventually
from servers import ours

import beanstalkd_py
from beanstalkd_py.cli import main as cli
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.parent import start
from beanstalkd_py.server.parent.shard_folders import with_workers


def options_of(monkeypatch: pytest.MonkeyPatch, *args: str) -> ServeOptions:
    """Parse the options as `serve`."""
    seen: list[ServeOptions] = []

    def record(options: ServeOptions, reread: object) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(start, "serve", record)
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *args])
    assert ended.value.code == 0
    return seen[0]


# --- invalid values -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-z", "abc"], ["-z", "abc", "number of bytes"]),
        (["-z", "-5"], ["-z", "negative"]),
        (["-z", "1e3"], ["-z", "1e3"]),
        (["-z", ""], ["-z", "''"]),
        (["-z", "9" * 50], ["-z", "too large"]),
        (["-s", "abc"], ["-s", "abc"]),
        (["-s", "0"], ["-s", "the minimum is 1"]),
        (["-s", "-1"], ["-s", "negative"]),
        (["-s", "9223372036854775808"], ["-s", "too large"]),
        (["-f", "x"], ["-f", "x", "milliseconds"]),
        (["-f-5"], ["-f", "negative"]),
        (["-f", "9" * 30], ["-f", "too large"]),
        (["--fsync-ms=2.5"], ["--fsync-ms", "2.5"]),
        (["-p", "abc"], ["-p", "abc"]),
        (["-p", "65536"], ["-p", "65535"]),
        (["-p", "٣"], ["-p", "invalid number"]),
        (["--workers", "0"], ["--workers", "the minimum is 1"]),
        (["--workers", "256"], ["--workers", "the maximum is 255"]),
        (["--workers", "many"], ["--workers", "many", "number of workers or auto"]),
        (["--colocate", ""], ["--colocate", "''"]),
        (["--colocate", "a b"], ["--colocate", "a b", "invalid separator"]),
        (["--colocate", "#"], ["--colocate", "#"]),
        (["--colocate", "é"], ["--colocate", "é"]),
        (["--colocate", ".\n"], ["--colocate"]),
        (["--colocate", "-" * 17], ["--colocate", "1 to 16"]),
        (["-u", "no-such-user"], ["-u", "no-such-user"]),
        (["-l", "unix:"], ["-l", "path"]),
        (["-l", "unix:/" + "x" * 200], ["-l", "107"]),
        (["-l", ""], ["-l", "empty"]),
        (["-q"], ["-q", "--help"]),
        (["--no-such"], ["--no-such", "--help"]),
        (["serve", "extra"], ["extra"]),
    ],
)
def test_invalid_values(args: list[str], words: list[str]) -> None:
    line = refusal(USAGE, *args)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "option", ["-b", "-f", "-l", "-p", "-s", "-u", "-z", "--workers", "--colocate"]
)
def test_missing_value(option: str) -> None:
    assert f"option {option} requires a value" in refusal(USAGE, option)


def test_folder_is_missing(tmp_path: Path) -> None:
    assert "does not exist" in refusal(FOLDER, "-p0", "-b", tmp_path / "nowhere")


def test_folder_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert "not a directory" in refusal(FOLDER, "-p0", "-b", path)


def test_folder_is_below_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert str(path) in refusal(FOLDER, "-p0", "-b", path / "folder")


def test_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    assert "is not accessible" in refusal(FOLDER, "-p0", *user, "-b", tmp_path)


def test_folder_is_locked(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        line = refusal(FOLDER, "-p0", "-b", tmp_path)
    assert str(tmp_path) in line
    assert "locked by another process" in line


def test_body_memory_requires_a_binlog() -> None:
    line = refusal(USAGE, "--body-memory=1M")
    assert line.startswith("beanstalkd-py: option --body-memory requires a binlog; use -b DIR")


@pytest.mark.costly
def test_two_servers_on_one_folder(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as first:
        assert "locked" in refusal(FOLDER, "-p0", "-b", tmp_path, "--workers=1")
        with first.connect() as client:
            client.put(b"still served")


# --- printed on request --------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["-v"], ["--version"], ["serve", "-v"], ["-V", "-v"]])
def test_version(args: list[str]) -> None:
    done = run(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"beanstalkd_py {beanstalkd_py.__version__} .*1\.13.*\n", done.stdout)


@pytest.mark.parametrize("args", [["-h"], ["serve", "--help"]])
def test_help_names_every_option(args: list[str]) -> None:
    done = run(*args)
    assert (done.returncode, done.stderr) == (0, "")
    for letter in "bcfFlnpsuVvzh":
        assert f"-{letter}" in done.stdout
    for name in ("workers", "colocate", "max-memory", "idle-timeout", "allow", "tls-listen"):
        assert f"--{name}" in done.stdout


def test_help_of_the_program() -> None:
    done = run()
    assert done.returncode == 0
    assert "serve" in done.stdout
    assert run("--help").stdout == done.stdout


def test_joined_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(monkeypatch, "-f0", "-b/dir", "-VVV", "-p11400", "-l::1", "-s4097", "-z9")
    assert options == ServeOptions(
        listen="::1",
        port=11400,
        address_given=True,
        binlog_dir="/dir",
        file_size=4097,
        sync_interval_ns=0,
        max_job_size=9,
        verbosity=3,
    )


def test_joined_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(monkeypatch, "-VFb", "/dir")
    assert (options.verbosity, options.sync_interval_ns, options.binlog_dir) == (1, -1, "/dir")


def test_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "--binlog-dir=/dir --fsync-ms 20 --listen localhost --port 1 --user me --max-job-size 2"
        " --file-size 4096 --verbose --workers 7 --colocate -"
    )
    assert options_of(monkeypatch, *words.split()) == ServeOptions(
        listen="localhost",
        port=1,
        address_given=True,
        binlog_dir="/dir",
        file_size=4096,
        sync_interval_ns=20_000_000,
        max_job_size=2,
        user="me",
        verbosity=1,
        workers=7,
        colocate=b"-",
    )


@pytest.mark.parametrize("words", [[], ["--workers", "auto"]], ids=["default", "auto"])
@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (3, 1), (4, 4), (1000, 255)])
def test_automatic_number_of_workers_of_a_new_server(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    processors: int,
    workers: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert with_workers(options_of(monkeypatch, *words)).workers == workers
    (tmp_path / "lock").touch()
    assert with_workers(options_of(monkeypatch, *words, "-b", str(tmp_path))).workers == workers
    assert with_workers(options_of(monkeypatch, "--workers=7")).workers == 7


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(monkeypatch) == ServeOptions()
    assert ServeOptions().sync_interval_ns == 0
    assert (ServeOptions().listen, ServeOptions().port) == ("0.0.0.0", 11300)


@pytest.mark.parametrize(
    ("args", "interval_ns"),
    [
        (["-f5"], 5_000_000),
        (["-F"], -1),
        (["--no-fsync"], -1),
        (["-f5", "-F"], -1),
        (["-F", "-f5"], 5_000_000),
        (["-f5", "-F", "-f3"], 3_000_000),
    ],
)
def test_the_later_sync_option_wins(
    monkeypatch: pytest.MonkeyPatch, args: list[str], interval_ns: int
) -> None:
    assert options_of(monkeypatch, *args).sync_interval_ns == interval_ns


def test_sizes_reach_the_server(tmp_path: Path) -> None:
    with ours("-b", tmp_path, "-s5000", "-z100") as server, server.connect() as client:
        stats = client.stats()
        assert (stats["binlog-max-size"], stats["max-job-size"]) == ("5000", "100")
        assert client.ask(b"put 0 0 1 101\r\n" + b"x" * 101 + b"\r\n") == b"JOB_TOO_BIG\r\n"


@pytest.mark.parametrize(("size", "body"), [(1024, 50), (601, 22)])
def test_binlog_files_have_exactly_the_size_that_was_given(
    tmp_path: Path, size: int, body: int
) -> None:
    """Like C beanstalkd's tests cttest_binlog_size_limit and _allocation."""
    with ours("-b", tmp_path, "-s", size) as server, server.connect() as client:
        put = b"put 0 0 120 %d\r\n" % body + b"a" * body + b"\r\n"
        for job in range(1, 97):
            assert client.ask(put) == b"INSERTED %d\r\n" % job
        for number in (1, 10):
            assert eventually((tmp_path / f"binlog.{number}").exists)
        assert max(path.stat().st_size for path in tmp_path.glob("binlog.*[0-9]")) == size
        for job in range(1, 97):
            assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        assert client.stats()["binlog-max-size"] == str(size)


def test_binlog_file_size_is_shown_without_a_binlog() -> None:
    with ours() as server, server.connect() as client:
        assert client.stats()["binlog-max-size"] == "10485760"


def test_job_size_above_the_limit_is_lowered() -> None:
    with ours("-z", "99999999999999999999") as server, server.connect() as client:
        assert client.stats()["max-job-size"] == "1073741824"
        assert eventually(lambda: "lowered to 1073741824" in server.stderr())


def test_ignored_options_warn() -> None:
    with ours("-c", "-n") as server:
        lines = server.complaints().splitlines()
    assert len(lines) == 2
    assert "-c is ignored" in lines[0]
    assert "-n is ignored" in lines[1]


@pytest.mark.costly
def test_verbosity(tmp_path: Path) -> None:
    with ours("-b", tmp_path) as server:
        pass
    assert server.complaints() == ""
    with ours("-b", tmp_path, "-V") as server:
        assert eventually(lambda: f"listening on 127.0.0.1:{server.port}" in server.stderr())


def test_serve_is_the_default_command() -> None:
    line = refusal(BIND, "-l", "192.0.2.1")
    assert refusal(BIND, "serve", "-l", "192.0.2.1") == line


def test_small_hard_limit_of_file_sizes_is_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "beanstalkd_py", "serve", "-p0", "-b", str(tmp_path)]
    limited = ["prlimit", "--fsize=1048576:1048576", "--", *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == USAGE, done
    (line,) = done.stderr.splitlines()
    assert "file size limit (ulimit -f) is 1048576 bytes" in line
    assert list(tmp_path.iterdir()) == []


def test_soft_limit_of_file_sizes_is_raised(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with ours("-b", tmp_path) as server, server.connect() as client:
            assert client.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
