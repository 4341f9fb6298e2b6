"""-V and -VV: each connection, command and reply is logged once."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import eventually
from server.logging.records import JSON, Record, of, records
from servers import Server, ours, reference, reference_command
from shards import TUBES
from wire import CRLF, Client

LONG = 5.0
PRINTABLE = re.compile(r"(?:[ -\[\]-~]|\\\\|\\x[0-9a-f]{2})*")


def unescaped(line: str) -> bytes:
    """Return the bytes of an escaped line."""
    assert PRINTABLE.fullmatch(line), line
    escape = re.compile(r"\\(\\|x([0-9a-f]{2}))")
    return escape.sub(lambda m: chr(int(m[2], 16)) if m[2] else "\\", line).encode("latin-1")


class Conversation:
    """One connection that records its input and output."""

    def __init__(self, server: Server) -> None:
        self.client: Client = server.connect()
        self.origin = f"127.0.0.1:{self.client.port}"
        self.sent: list[bytes | None] = []
        self.received: list[bytes] = []
        self.tube = b"default"

    def command(self, line: bytes, body: bytes | None = None, long: bool = False) -> bytes:
        self.sent.append(None if long else line)
        self.client.send(line + CRLF + (b"" if body is None else body + CRLF))
        reply = self.client.reply()
        self.received.append(reply.split(CRLF)[0])
        return reply

    def put(self, delay: int = 0) -> int:
        body = b"to=\r\nann"
        reply = self.command(b"put 3 %d 60 %d" % (delay, len(body)), body)
        return int(reply.split()[1])


def every_command(talk: Conversation, tube: bytes) -> None:
    """Yield each command of the protocol with each kind of reply."""
    talk.command(b"use " + tube)
    talk.command(b"watch " + tube)
    talk.command(b"ignore default")
    talk.command(b"ignore " + tube)
    first, second, third = talk.put(), talk.put(), talk.put(delay=100)
    talk.command(b"peek %d" % first)
    talk.command(b"peek-ready")
    talk.command(b"peek-delayed")
    talk.command(b"peek-buried")
    talk.command(b"reserve")
    talk.command(b"touch %d" % first)
    talk.command(b"release %d 0 0" % first)
    talk.command(b"reserve-job %d" % second)
    talk.command(b"bury %d 5" % second)
    talk.command(b"kick-job %d" % second)
    talk.command(b"kick 10")
    talk.command(b"pause-tube %b 0" % tube)
    talk.command(b"stats-job %d" % first)
    talk.command(b"stats-tube %b" % tube)
    talk.command(b"stats")
    for line in (b"list-tubes", b"list-tube-used", b"list-tubes-watched"):
        talk.command(line)
    for job in (first, second, third, 10**9):
        talk.command(b"delete %d" % job)
    talk.command(b"reserve-with-timeout 0")
    talk.command(b"put 0 0 60 70000", b"x" * 70000)


def hostile_bytes(talk: Conversation) -> None:
    """Generate bytes that would be lines, colours or fields in an unescaped log."""
    talk.command(b"use a\nbeanstalkd-py: error: forged")
    talk.command(b'use "},{"event":"reply')
    talk.command(b"\x1b[2J\x1b[31mred")
    talk.command(b"\x00")
    talk.command(b"")
    talk.command(b"back\\slash \\x41")
    talk.command(bytes(range(128)))
    talk.command(bytes(range(128, 256)))
    talk.command(b"\xff" * 222)
    talk.command(b"y" * 300, long=True)
    generator = random.Random(7)
    for _ in range(50):
        line = generator.randbytes(generator.randrange(200)).replace(b"\r\n", b"")
        talk.command(b"?" + line.removesuffix(b"\r"))


def closes(server: Server, *talks: Conversation) -> bool:
    gone = {one["from"] for one in of(server, "close")}
    return all(talk.origin in gone for talk in talks)


def check(server: Server, talk: Conversation, reason: str) -> list[Record]:
    """Check that the log has this conversation; return its records."""
    mine = [one for one in records(server) if one.get("from") == talk.origin]
    # Workers write independently; a moved connection has lines of two workers.
    mine.sort(key=lambda one: str(one["time"]))
    assert len({one["connection"] for one in mine}) == 1
    lines = [one.get("line") for one in mine if one.get("event") == "command"]
    assert [None if line is None else unescaped(line) for line in lines] == talk.sent
    replies = [unescaped(one["reply"]) for one in mine if one.get("event") == "reply"]
    assert replies == talk.received
    assert mine[0]["event"] == "accept"
    last = mine[-1]
    assert (last["event"], last["commands"]) == ("close", len(talk.sent))
    assert last["reason"] == reason
    assert 0 < last["duration_s"] < 60
    return mine


@pytest.fixture(scope="module", params=[1, 2], ids=["one", "two"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ours("-VV", *JSON, "--workers", str(request.param)) as running:
        yield running


@pytest.mark.parametrize("tube", TUBES)
def test_every_command_and_its_reply(server: Server, tube: bytes) -> None:
    talk = Conversation(server)
    every_command(talk, tube)
    talk.sent.append(b"quit")
    talk.client.send(b"quit\r\n")
    assert talk.client.read_to_end() == b""
    assert eventually(lambda: closes(server, talk), LONG)
    mine = check(server, talk, "quit")
    for one in mine:
        if one["event"] == "command":
            words = one["line"].split()
            assert one["command"] == words[0]
            if words[0] in {"use", "watch", "ignore", "stats-tube", "pause-tube"}:
                assert one["tube"] == words[1]
            elif words[0] in {"put", "kick", "peek-ready", "peek-delayed", "peek-buried"}:
                assert one["tube"] == tube.decode()
            elif len(words) > 1 and words[0] != "reserve-with-timeout":
                assert one["job"] == int(words[1])
            else:
                assert "tube" not in one
    inserted = [int(reply.split()[1]) for reply in talk.received if reply.startswith(b"INSERTED")]
    bodies = [(one["job"], one["bytes"]) for one in mine if one["event"] == "job"]
    assert bodies == [(job, len(b"to=\r\nann")) for job in inserted]


def test_clients_cannot_forge_lines(server: Server) -> None:
    talk = Conversation(server)
    hostile_bytes(talk)
    talk.client.close()
    assert eventually(lambda: closes(server, talk), LONG)
    check(server, talk, "closed by the client")


def test_concurrent_connections(server: Server) -> None:
    """Some move to another worker and wait for jobs there."""
    talks = [Conversation(server) for _ in range(6)]
    for number, talk in enumerate(talks):
        talk.command(b"watch " + TUBES[number % 2])
    for _ in range(40):
        for number, talk in enumerate(talks):
            talk.command(b"use " + TUBES[(number + 1) % 2])
            talk.put()
    waiting, giving = talks[:3], talks[3:]
    for talk in waiting:
        talk.command(b"use empty")
        talk.command(b"watch later")
        for name in (*TUBES, b"default"):
            talk.command(b"ignore " + name)
        talk.sent.append(b"reserve")
        talk.client.send(b"reserve\r\n")
    for talk in giving:
        talk.command(b"use later")
        talk.put()
    for talk in waiting:
        talk.received.append(talk.client.reply().split(CRLF)[0])
    for talk in talks:
        talk.client.close()
    assert eventually(lambda: closes(server, *talks), LONG)
    for talk in talks:
        check(server, talk, "closed by the client")


@pytest.mark.costly
def test_a_reload_changes_the_verbosity(tmp_path: Path) -> None:
    """Also for open connections."""
    path = tmp_path / "options"
    path.write_text("")
    with ours(f"--config={path}", "--workers=2") as server:
        talk = Conversation(server)
        talk.client.ask(b"list-tube-used\r\n")
        path.write_text('verbose = 2\nlog-format = "json"\n')
        server.signal(signal.SIGHUP)

        def received() -> bool:
            talk.command(b"list-tubes-watched")
            sent = server.stderr().splitlines()
            return any(talk.origin in line and line.startswith("{") for line in sent)

        assert eventually(received, LONG)
        path.write_text('verbose = 0\nlog-format = "text"\n')
        server.signal(signal.SIGHUP)

        def silent() -> bool:
            before = server.stderr()
            for _ in range(5):
                talk.command(b"stats")
            return server.stderr() == before

        assert eventually(silent, LONG)
        assert "warning" not in server.stderr()


# --- the levels of C beanstalkd ---------------------------------------------------------------


SCRIPT = (
    b"use a\r\nput 0 0 10 2\r\nhi\r\nwatch a\r\nreserve\r\nnonsense\r\ndelete 1\r\n"
    b"stats-tube a\r\nreserve-with-timeout 0\r\nquit\r\n"
)


def kinds(text: str) -> list[list[str]]:
    """Return, per closed connection: accept, commands and replies, close."""
    shape = r"(?m)^(?:beanstalkd-py: )?(?:\S+ )?(accept |close |[<>])(\d+)\b"
    ended, going = [], {}
    for kind, number in re.findall(shape, text):
        going.setdefault(number, []).append(kind.strip())
        if kind == "close ":
            ended.append(going.pop(number))
    return ended


def played(server: Server, sent: Callable[[], str]) -> list[str]:
    """Play the script on a connection; return its log lines."""
    # The connection of the readiness check must be logged first.
    assert eventually(lambda: len(kinds(sent())) == 1)
    with server.connect() as client:
        client.send(SCRIPT)
        client.read_to_end()
    assert eventually(lambda: len(kinds(sent())) == 2)
    return kinds(sent())[1]


@pytest.mark.parametrize("level", ["-V", "-VV"])
def test_levels_equal_those_of_c_beanstalkd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    sent = tmp_path / "said"
    wrapper = tmp_path / "beanstalkd"
    # C beanstalkd writes the output of -V to stdout.
    wrapper.write_text(f'#!/bin/sh\nexec {reference_command()[0]} "$@" >{sent}\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("BEANSTALKD_PATH", str(wrapper))
    with reference(level) as theirs:
        expected = played(theirs, sent.read_text)
        # C beanstalkd logs the job of a reply on its own line; our reply has its id.
        jobs = len(re.findall(r"(?m)^>\d+ job", sent.read_text()))
    with ours(level) as server:
        found = played(server, server.stderr)
    assert found.count("<") == expected.count("<")
    assert found.count(">") == expected.count(">") - jobs


@pytest.mark.costly
def test_a_connection_without_data_is_logged() -> None:
    """Although no worker ever has it."""
    with ours("-V", *JSON, "--workers=2") as server:
        with server.connect() as client:
            origin = f"127.0.0.1:{client.port}"
        assert eventually(lambda: origin in {one["from"] for one in of(server, "close")}, LONG)
        (found,) = (one for one in records(server) if one.get("from") == origin)
        assert (found["worker"], found["commands"]) == ("parent", 0)


@pytest.mark.costly
def test_without_v_clients_are_not_logged() -> None:
    with ours() as server:
        talk = Conversation(server)
        every_command(talk, b"a")
        talk.client.close()
        assert server.complaints() == ""
