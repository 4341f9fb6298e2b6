"""The examples of docs/operations/console.md: commands, the configuration, and proxies."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from console.test_serve import PASSWORD, Console, line_of
from docs.documents import document
from docs.test_names import contexts
from servers import free_port, ours

from beanstalkd_py.console.access.accounts import Role

PAGE = "docs/operations/console.md"
CLIENT = "192.0.2.9"


def blocks(language: str, part: str = "") -> list[str]:
    found = (one.text for one in document(PAGE).blocks if one.language == language)
    return [text for text in found if part in text]


def commands() -> list[list[str]]:
    lines = "".join(blocks("sh")).splitlines()
    (options,) = (re.findall(r'^OPTIONS="(.*)"$', text) for text in blocks("text", "OPTIONS="))
    words = [shlex.split(line.partition(">>")[0]) for line in lines]
    serving = [["beanstalkd-py", "serve", *shlex.split(text)] for text in options]
    return [one for one in words if one[:1] == ["beanstalkd-py"]] + serving


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[1])
def test_options_of_commands_are_valid(words: list[str]) -> None:
    if words[1] == "console-user":
        words = [*words, "--password", PASSWORD]
    found: dict[str, click.Command] = {str(one.info_name): one.command for one in contexts()}
    found[words[1]].make_context(words[1], words[2:])


@pytest.fixture
def configured(tmp_path: Path) -> tuple[Console, str, Path]:
    """A console, the name that browsers use, and the configuration of the page."""
    (text,) = blocks("toml")
    console, users = Console(free_port()), tmp_path / "users"
    users.write_text(line_of("ann", Role.ADMIN))
    values = tomllib.loads(text)
    assert set(values) == {"console", "console-users", "console-host", "console-https"}
    text = text.replace("11381", str(console.port)).replace(values["console-users"], str(users))
    file = tmp_path / "options.toml"
    file.write_text(text)
    return console, values["console-host"][0], file


def headers_of_nginx(name: str) -> dict[str, str]:
    """Return the headers that the example of nginx sets, for a client that sends one, too."""
    values = {
        "$http_host": name,
        "$proxy_add_x_forwarded_for": f"203.0.113.1, {CLIENT}",
        '""': "",
    }
    (text,) = blocks("nginx")
    assert f"server_name {name};" in text
    assert "proxy_pass http://127.0.0.1:11381;" in text
    pairs = re.findall(r"proxy_set_header (\S+) (.*);", text)
    return {header: values[value] for header, value in pairs if values[value]}


def headers_of_caddy(name: str) -> dict[str, str]:
    (text,) = blocks("text", "reverse_proxy")
    assert text.startswith(name)
    return {"Host": name, "X-Forwarded-For": CLIENT}


@pytest.mark.parametrize("headers_of", [headers_of_nginx, headers_of_caddy])
def test_proxies_reach_the_console(
    configured: tuple[Console, str, Path],
    headers_of: object,
    tmp_path: Path,
) -> None:
    console, name, file = configured
    audit = tmp_path / "audit"
    assert callable(headers_of)
    with ours("--config", file, "--console-audit-log", audit):
        console.headers = {**headers_of(name), "Origin": f"https://{name}"}
        assert console.log_in("ann") == 200
        assert console.session()["user"] == "ann"
        assert console.put()[0] == 200
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        assert {(line["user"], line["address"]) for line in lines} == {("ann", CLIENT)}
        console.headers = {"Host": "other.example.com"}
        assert console.ask("/api/session")[0] == 421


def test_roles_are_described() -> None:
    text = document(PAGE).text
    assert [role.name.lower() for role in Role] == re.findall(r"^\| `([a-z]+)` \|", text, re.M)
