"""The examples of docs/operations/console.md: commands, the configuration, and proxies."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from console.test_serve import PASSWORD
from docs.documents import document
from docs.test_names import contexts

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


def test_roles_are_described() -> None:
    text = document(PAGE).text
    assert [role.name.lower() for role in Role] == re.findall(r"^\| `([a-z]+)` \|", text, re.M)
