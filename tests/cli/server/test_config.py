"""Options in a file and in the environment: precedence, errors, reload."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import USAGE, refusal, run
from cli.server.test_serve_options import options_of
from hypothesis import given
from hypothesis import strategies as st
from processes import eventually
from servers import Server, ours
from shards import kill_worker, worker_pids
from wire import inserted_id

from beanstalkd_py import errors
from beanstalkd_py.cli.server.config_layers import settings_of
from beanstalkd_py.cli.server.serve import serve
from beanstalkd_py.control.client import connect
from beanstalkd_py.server.option_changes import CHANGEABLE, compare, option_values
from beanstalkd_py.server.options import ServeOptions

# Each setting, with two values that are not its default.
VALUES: dict[str, tuple[object, object]] = {
    "allow": ("10.0.0.0/8", "192.0.2.0/24,::1/128"),
    "binlog-dir": ("/tmp", "/var/tmp"),
    "body-memory": (1000, 2000),
    "colocate": (".", "/"),
    "console": ("127.0.0.1:11381", "[::1]:1"),
    "console-audit-log": ("/a", "/b"),
    "console-host": ("a", "a.example.com,b"),
    "console-https": (False, True),
    "console-role": ("operate", "admin"),
    "console-user-header": ("X-User", "Remote-User"),
    "console-users": ("/a", "/b"),
    "control": ("/tmp/a", "none"),
    "file-size": (8192, 4096),
    "fsync-ms": (50, "never"),
    "history": ("/srv", "/opt"),
    "history-age": (60, 0.5),
    "history-backlog": (1 << 20, 1 << 21),
    "history-size": (1000, 2000),
    "history-sizes": ("small", "rocketmq"),
    "idle-timeout": (60, 0.5),
    "listen": ("127.0.0.1", "::1"),
    "max-connections": (10, 20),
    "log-format": ("text", "json"),
    "max-job-size": (1000, 2000),
    "metrics": ("127.0.0.1:11380", "unix:/tmp/a"),
    "metrics-tubes": (7, 0),
    "max-memory": (1000, 2000),
    "max-tubes": (5, 6),
    "output-limit": (4096, 8192),
    "replicate": ("nats://localhost/a", "tls://127.0.0.1:4333,[::1]/b"),
    "replicate-address": ("localhost:1", "[::1]:2"),
    "replicate-copies": (1, 5),
    "replicate-creds": ("/a", "/b"),
    "replicate-keep": (60, 0.5),
    "replicate-lease": (4, 60),
    "replicate-timeout": (2, 3.5),
    "replicate-tls-ca": ("/a", "/b"),
    "output-timeout": (1, 2.25),
    "port": (11400, 11500),
    "send-timeout": (3, 4),
    "tls-ca": ("/a", "/b"),
    "tls-cert": ("/a", "/b"),
    "tls-key": ("/a", "/b"),
    "tls-listen": ("[::1]:1", "localhost:2"),
    "tls-processes": (2, 3),
    "slow-log": (100, 5),
    "user": ("nobody", "root"),
    "verbose": (1, 2),
    "workers": (3, 4),
}


def toml(values: dict[str, object]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def needed_by(name: str) -> dict[str, str]:
    """Return the settings that a setting requires."""
    if name in ("history", "history-age", "history-size"):
        needed = {"binlog-dir": "/", "history": "/tmp"}
        return {key: value for key, value in needed.items() if key != name}
    if name.startswith("replicate"):
        needed = {"binlog-dir": "/", "replicate": "nats://localhost/a"}
        return {key: value for key, value in needed.items() if key != name}
    if name.startswith("console-"):
        needed = {"console": "127.0.0.1:1", "console-users": "/u"}
        return {key: value for key, value in needed.items() if key != name}
    if name == "body-memory":
        return {"binlog-dir": "/"}
    tls = {"tls-listen": "localhost:1", "tls-cert": "/c", "tls-key": "/k"}
    return {k: v for k, v in tls.items() if k != name} if name.startswith("tls-") else {}


def test_every_option_of_serve_is_a_setting() -> None:
    assert set(settings_of(serve)) - {"no-fsync"} == set(VALUES)
    assert set(option_values(ServeOptions())) == {*VALUES, "schedule", "tube"}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("places", ["f", "e", "c", "fe", "ec", "fc", "fec"])
def test_precedence_of_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, places: str
) -> None:
    """The last letter is the layer that must win."""
    first, second = VALUES[name]
    value = {place: second if place == places[-1] else first for place in places}
    words = [f"--{other}={text}" for other, text in needed_by(name).items()]
    if "f" in places:
        (tmp_path / "file").write_text(toml({name: value["f"]}))
        words.append(f"--config={tmp_path / 'file'}")
    if "e" in places:
        variable = f"BEANSTALKD_PY_{name.upper().replace('-', '_')}"
        monkeypatch.setenv(variable, str(value["e"]))
    if "c" in places and name == "verbose":
        words.append("-VV")
    elif "c" in places and value["c"] is True:
        words.append(f"--{name}")
    elif "c" in places:
        words.append(f"--{name}={value['c']}")
    assert option_values(options_of(monkeypatch, *words))[name] == second


def test_file_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("port = 11400\n")
    monkeypatch.setenv("BEANSTALKD_PY_CONFIG", str(tmp_path / "file"))
    assert options_of(monkeypatch).port == 11400


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ports = 1", ["unknown setting 'ports'", "port"]),
        ("no-config = 1", ["unknown setting"]),
        ('config = "x"', ["unknown setting 'config'"]),
        ("port = 65536", ["port", "the maximum is 65535"]),
        ("port = -1", ["port", "negative"]),
        ("port = true", ["port", "true and false"]),
        ("port = 1.5", ["port", "an integer"]),
        ("idle-timeout = -1", ["idle-timeout", "invalid number of seconds"]),
        ("idle-timeout = 'soon'", ["idle-timeout", "'soon'", "none"]),
        ("idle-timeout = 0.0001", ["idle-timeout", "too small"]),
        ("max-memory = '1.5G'", ["max-memory", "number of bytes"]),
        ("max-memory = 'G'", ["max-memory", "'G'"]),
        ("output-limit = 0", ["output-limit", "the minimum is 4096"]),
        ('output-limit = "none"', ["output-limit", "this limit is required; the minimum is 4096"]),
        ("allow = ['10.0.0.0/8', '10.0.0.1/8']", ["allow", "'10.0.0.1/8'"]),
        ("allow = [1]", ["allow", "list of strings"]),
        ("port = [1]", ["port", "an integer"]),
        ("[port]", ["port", "an integer"]),
        ("port = ", ["invalid TOML"]),
        ("port = 1\nport = 2", ["invalid TOML"]),
        ("verbose = 10", ["verbose", "the maximum is 9"]),
        ("workers = 'many'", ["workers", "number of workers or auto"]),
        ("no-fsync = 'perhaps'", ["no-fsync"]),
        ("\udcff", ["invalid TOML"]),
    ],
)
def test_errors_in_a_file(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    line = refusal(USAGE, "serve", "--config", path)
    checked = run("config", "check", path)
    assert checked.returncode == 1
    for word in [str(path), *words]:
        assert word in line
        assert word in checked.stderr


def test_errors_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEANSTALKD_PY_MAX_JOB_SIZE", "large")
    line = refusal(USAGE, "-p0")
    assert "BEANSTALKD_PY_MAX_JOB_SIZE" in line
    assert "'large'" in line


def test_a_missing_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(USAGE, "--config", tmp_path / "nowhere")
    assert run("config", "check", tmp_path / "nowhere").returncode == 2


def test_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for excluded in (is_replication, is_not_replicated):
        path.write_text(toml({k: v for k, (v, _) in VALUES.items() if not excluded(k)}))
        done = run("config", "check", path)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{path} is valid\n", "")


def is_replication(name: str) -> bool:
    return name.startswith("replicate")


def is_not_replicated(name: str) -> bool:
    return name.startswith("history") or name == "fsync-ms"


def test_show_values_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("port = 1\nfsync-ms = 2\n")
    monkeypatch.setenv("BEANSTALKD_PY_FSYNC_MS", "3")
    words = ["config", "show", f"--config={path}", "-z", "5"]
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    table = {name: (one["value"], one["from"]) for name, one in json.loads(done.stdout).items()}
    assert table.keys() == {*VALUES, "schedule", "tube"}
    assert table["port"] == (1, "file")
    assert table["fsync-ms"] == (3, "environment")
    assert table["max-job-size"] == (5, "command line")
    assert table["file-size"] == (10485760, "default")
    lines = {line.split()[0]: line.split()[1:] for line in run(*words).stdout.splitlines()}
    assert lines["port"] == ["1", "file"]
    assert lines["user"] == ["-", "default"]


@pytest.mark.costly
def test_flag_of_the_file_can_be_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("no-fsync = true\n")
    words = ["config", "show", "--json", f"--config={path}"]
    assert json.loads(run(*words).stdout)["fsync-ms"]["value"] == "never"
    for no in ("0", "false"):
        monkeypatch.setenv("BEANSTALKD_PY_NO_FSYNC", no)
        assert json.loads(run(*words).stdout)["fsync-ms"]["value"] == 0


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--max-memory 4K", "max-memory", 4096),
        ("--max-memory 2g", "max-memory", 2 << 30),
        ("--max-memory none", "max-memory", None),
        ("--max-memory 0", "max-memory", None),
        ("--body-memory 3M -b /", "body-memory", 3 << 20),
        ("--body-memory none", "body-memory", None),
        ("--max-connections none", "max-connections", None),
        ("--idle-timeout none", "idle-timeout", None),
        ("--idle-timeout 0", "idle-timeout", None),
        ("--idle-timeout 1.5", "idle-timeout", 1.5),
        ("--allow 10.0.0.1 --allow ::1,10.0.0.1", "allow", "10.0.0.1/32,::1/128"),
    ],
)
def test_units_and_none(
    monkeypatch: pytest.MonkeyPatch, words: str, name: str, value: object
) -> None:
    assert option_values(options_of(monkeypatch, *words.split()))[name] == value


# --- reloading ----------------------------------------------------------------------------------


OPTIONS = st.builds(
    ServeOptions,
    port=st.sampled_from([1, 2]),
    binlog_dir=st.sampled_from([None, "a"]),
    sync_interval_ns=st.sampled_from([-1, 0, 50_000_000]),
    max_job_size=st.sampled_from([1, 2]),
    verbosity=st.integers(0, 2),
    workers=st.integers(1, 2),
)


@given(OPTIONS, OPTIONS)
def test_reload_applies_or_postpones_changes(old: ServeOptions, new: ServeOptions) -> None:
    changes = compare(old, new)
    before, after = option_values(old), option_values(new)
    different = {name: after[name] for name in after if after[name] != before[name]}
    assert changes.applied | changes.waiting == different
    assert not changes.applied.keys() & changes.waiting.keys()
    assert changes.applied.keys() <= set(CHANGEABLE)
    never = "never" in (before["fsync-ms"], after["fsync-ms"])
    assert (set(CHANGEABLE) & changes.waiting.keys()) <= ({"fsync-ms"} if never else set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_text("max-job-size = 10\n")
    return made


@pytest.fixture(params=[1, 2])
def server(request: pytest.FixtureRequest, path: Path) -> Iterator[Server]:
    with ours(f"--config={path}", f"--workers={request.param}") as running:
        yield running


def all_serve(server: Server) -> bool:
    with connect(f"127.0.0.1:{server.port}") as control:
        return all(row["state"] == "serving" for row in control.parts("workers"))


def accepts(server: Server, size: int) -> bool:
    with server.connect() as client:
        reply = client.ask(b"put 0 0 9 %d\r\n%b\r\n" % (size, b"x" * size))
        return reply.startswith(b"INSERTED")


@pytest.mark.costly
@pytest.mark.parametrize("way", ["signal", "request"])
def test_reload(server: Server, path: Path, way: str) -> None:
    assert accepts(server, 10)
    assert not accepts(server, 11)
    path.write_text("max-job-size = 20\nverbose = 1\nfile-size = 4096\n")
    if way == "signal":
        server.signal(signal.SIGHUP)
    else:
        with connect(f"127.0.0.1:{server.port}") as control:
            changes = control.ask("reload")
        assert changes == {
            "applied": {"max-job-size": 20, "verbose": 1},
            "waiting": {"file-size": 4096},
        }
    assert eventually(lambda: accepts(server, 20))
    assert not accepts(server, 21)
    with server.connect() as client:
        assert client.stats()["max-job-size"] == "20"
    assert eventually(lambda: "max-job-size is 20 now" in server.stderr())
    assert eventually(lambda: "file-size 4096 needs a restart" in server.stderr())


@pytest.mark.costly
def test_reload_of_an_invalid_file_changes_nothing(server: Server, path: Path) -> None:
    path.write_text("max-job-size = 20\nnonsense = 1\n")
    with (
        connect(f"127.0.0.1:{server.port}") as control,
        pytest.raises(errors.ControlError, match="unknown setting 'nonsense'"),
    ):
        control.ask("reload")
    server.signal(signal.SIGHUP)
    assert eventually(lambda: "nothing has changed" in server.stderr())
    assert not accepts(server, 11)


@pytest.mark.costly
def test_restarted_worker_has_the_new_options(path: Path) -> None:
    with ours(f"--config={path}", "--workers=2") as server:
        path.write_text("max-job-size = 20\n")
        server.signal(signal.SIGHUP)
        assert eventually(lambda: accepts(server, 20))
        for pid in worker_pids(server):
            kill_worker(server, pid)
        assert eventually(lambda: all_serve(server), 10)
        assert accepts(server, 20)
        assert not accepts(server, 21)


def test_syncs_follow_the_interval(tmp_path: Path) -> None:
    """Replies wait for syncs only after the interval has become 0."""
    file = tmp_path / "file"
    file.write_text("fsync-ms = 3600000\n")
    folder = tmp_path / "jobs"
    folder.mkdir()
    with ours(f"--config={file}", "-b", folder) as server, server.connect() as client:
        inserted_id(client.ask(b"put 0 0 9 1\r\nx\r\n"))
        file.write_text("fsync-ms = 0\n")
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("reload")["applied"] == {"fsync-ms": 0}
        for _ in range(10):
            inserted_id(client.ask(b"put 0 0 9 1\r\nx\r\n"))
        file.write_text("no-fsync = true\n")
        with connect(f"127.0.0.1:{server.port}") as control:
            assert control.ask("reload")["waiting"] == {"fsync-ms": "never"}
        inserted_id(client.ask(b"put 0 0 9 1\r\nx\r\n"))


def test_sighup_on_a_terminal_stops_the_server(tmp_path: Path) -> None:
    master, terminal = os.openpty()
    command = [sys.executable, "-m", "beanstalkd_py", "-l127.0.0.1", "-p0", "-V", "--workers=1"]
    process = subprocess.Popen(
        ["env", "--default-signal=HUP", *command, "--control=none"],  # nohup would pass SIG_IGN on
        stdin=terminal,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "is ready" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGHUP)
    assert process.wait(10) == -signal.SIGHUP
    os.close(master)
    os.close(terminal)
