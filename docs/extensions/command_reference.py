"""Generate the command and option reference from the program's click objects; adapt docstrings.

A page contains a marker on a line of its own, which is replaced before Sphinx parses the page:

  % commands         every command, with usage, help text and options
  % command: NAME    one command
  % serve-settings   a table of the options of `serve` in files and in the environment

Docstrings are plain text with code in backticks and in indented blocks, so they are escaped before
autodoc parses them as reStructuredText.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from beanstalkd_py.cli.main import COMMANDS, PROGRAM, cli
from beanstalkd_py.cli.server.config_layers import PREFIX, settings_of
from beanstalkd_py.server.option_changes import CHANGEABLE

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_MARKER = re.compile(r"^% (commands|serve-settings|command: (.+))$", re.MULTILINE)
_SPECIAL = re.compile(r"([\\*_<>\[\]|#$~{}^])")
_CODE = re.compile(r"(`[^`]*`)")
_EXAMPLES = re.compile(r"^(Examples?|Jobs):$")
_WIDE = 10_000
"""Columns, so that click does not wrap usage lines and help texts."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", _replace_markers)
    app.connect("autodoc-process-docstring", _escape_docstring)
    return {"parallel_read_safe": True}


def _replace_markers(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = _MARKER.sub(_generated, source[0])


def _generated(marker: re.Match[str]) -> str:
    if marker[1] == "commands":
        return "\n".join(_all_commands())
    if marker[1] == "serve-settings":
        return "\n".join(_serve_settings())
    return "\n".join(_command(_context(marker[2]), heading=""))


def _context(path: str) -> click.Context:
    context = click.Context(cli, info_name=PROGRAM)
    for name in path.split():
        group = context.command
        assert isinstance(group, click.Group)
        command = group.get_command(context, name)
        assert command is not None, path
        # With its settings, because a command keeps the option of its first help.
        context = click.Context(command, context, name, **command.context_settings)
    return context


def _all_commands() -> Iterator[str]:
    for section, names in COMMANDS.items():
        yield f"## {section}\n"
        for name in names:
            context = _context(name)
            yield from _command(context, heading="###")
            if isinstance(context.command, click.Group):
                for sub in context.command.list_commands(context):
                    yield from _command(_context(f"{name} {sub}"), heading="###")


def _command(context: click.Context, heading: str) -> Iterator[str]:
    command = context.command
    if heading:
        yield f"{heading} {context.command_path.removeprefix(PROGRAM).strip()}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield from _help_text(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            yield f"{_option_names(names)}\n: {_escape(' '.join(text.split()))}\n"


def _option_names(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _help_text(text: str) -> Iterator[str]:
    """Paragraphs; those after click's mark for preformatted text become code blocks."""
    for paragraph in re.split(r"\n\s*\n", _dedent(text).split("\f")[0]):
        if paragraph.startswith("\b"):
            lines = paragraph.splitlines()[1:]
            if lines and _EXAMPLES.match(lines[0].strip()):
                yield f"{lines.pop(0).strip()}\n"
            yield "```text\n" + _dedent("\n".join(lines)) + "\n```\n"
        elif paragraph.strip():
            yield _escape(" ".join(paragraph.split())) + "\n"


def _dedent(text: str) -> str:
    import inspect
    import textwrap

    return textwrap.dedent(text) if text.startswith(" ") else inspect.cleandoc(text)


def _escape(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def _serve_settings() -> Iterator[str]:
    context = _context("serve")
    yield "| option | environment variable | default | at a reload | meaning |"
    yield "|---|---|---|---|---|"
    for name, option in sorted(settings_of(context.command).items()):
        variable = PREFIX + name.upper().replace("-", "_")
        default = option.default if option.show_default and option.default is not None else ""
        reload = "changes" if name in CHANGEABLE else "needs a restart"
        short = "".join(f"`{one}`, " for one in option.opts if not one.startswith("--"))
        text = _escape(option.help or "")
        yield f"| {short}`--{name}` | `{variable}` | {default} | {reload} | {text} |"


def _escape_docstring(
    app: Sphinx, kind: str, name: str, subject: object, options: object, lines: list[str]
) -> None:
    escaped: list[str] = []
    for line in lines:
        is_code = line.startswith("    ")
        starts_block = is_code and escaped and not escaped[-1]
        if starts_block and not (len(escaped) > 1 and escaped[-2].startswith("    ")):
            escaped += ["::", ""]
        escaped.append(line if is_code else _escape_rst(line))
    lines[:] = escaped


def _escape_rst(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*|])|(?<=\w)_\b", r"\\\g<0>", part)
        for part in parts
    )
