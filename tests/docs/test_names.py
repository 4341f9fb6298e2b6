"""Links, file names, symbols and options in documents exist."""

from __future__ import annotations

import re

import click
import pytest
from docs.documents import ROOT, Document, document, documents, tree_files

from beanstalkd_py.cli.main import COMMANDS, PROGRAM, cli

# Paths in a document may be relative to these folders, besides that of the document.
BASES = ("", "csrc/", "beanstalkd_py/", "docs/", "beanstalkd_py/server/", "tests/")
FILE = re.compile(r"(?:[\w@.{},*-]+/)*[\w@-]+\.(?:c|h|py|md|yml|toml|service|socket)")
FOLDER = re.compile(r"(?:beanstalkd_py|csrc|tests|tools|docs|systemd)(?:/[\w.-]+)*/?")
SYMBOL = re.compile(r"\b(?:bs|hs|bc)_[a-z0-9_]+|\b(?:BS|HS|BC)_[A-Z0-9_]+")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Files that users have or servers create.
USERS_FILES = {"beanstalkd.service", "beanstalkd.socket", "beanstalkd-py@NAME.service"}
# Options of other programs, and of tools/.
OTHER_OPTIONS = {
    *("--find-links", "--packaging", "--pip-args", "--python"),
    *("--py-files", "--now", "--jobs", "--seed", "--log", "--check", "--binlog-dir", "--quiet"),
    *(
        "--back",
        "--packaging",
        "--sanitized",
        "--spark",
        "--rocketmq",
        "--oldest-spark",
        "--ubuntu",
        "--all",
        "--timelines",
        "--interactive",
        "--help",
        "--version",
    ),
}

each_document = pytest.mark.parametrize("one", documents(), ids=lambda one: one.name)


def exists(one: Document, name: str) -> bool:
    """Is it a file or folder of the tree? A name without a folder may be anywhere."""
    name = name.rstrip("/")
    files = tree_files()
    if "/" not in name:
        return any(path.rsplit("/", 1)[-1] == name for path in files) or (ROOT / name).is_dir()
    beside = str((one.path.parent / name).resolve().relative_to(ROOT.resolve()))
    for path in (beside, *(base + name for base in BASES)):
        if path in files or any(file.startswith(path + "/") for file in files):
            return True
    return False


@each_document
def test_link_targets_exist(one: Document) -> None:
    broken = []
    for link in one.links:
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        path = (one.path.parent / target).resolve() if target else one.path
        found = path.exists() and ROOT in path.parents
        if not found or (anchor and anchor not in document(str(path.relative_to(ROOT))).anchors):
            broken.append(link)
    assert not broken


@each_document
def test_named_files_are_in_the_tree(one: Document) -> None:
    code = {text for text in one.code if " " not in text}
    names = {
        text
        for text in code
        if (FILE.fullmatch(text) or FOLDER.fullmatch(text)) and "*" not in text
    }
    missing = {name for name in names - USERS_FILES if "{" not in name and not exists(one, name)}
    assert not missing


@each_document
def test_named_symbols_are_in_the_c_code(one: Document) -> None:
    names = {name for text in one.code for name in SYMBOL.findall(text)}
    if not names:
        return
    sources = "\n".join(path.read_text() for path in (ROOT / "csrc").rglob("*.[ch]"))
    missing = {name for name in names if not re.search(rf"\b{name}", sources)}
    assert not missing


def test_named_options_exist() -> None:
    known = {name for context in contexts() for name in option_names(context)} | OTHER_OPTIONS
    missing = {
        (one.name, name)
        for one in documents()
        if one.name.startswith(("docs/", "README", "ARCHITECTURE", "CONTRIBUTING"))
        for name in OPTION.findall(re.sub(r"```.*?```", "", one.text, flags=re.DOTALL))
        if name not in known and not name.startswith("--with-")
    }
    assert not missing


def test_glossary_names_existing_paths() -> None:
    glossary = document("docs/internals/glossary.md")
    named = {
        name
        for cell in glossary.table_cells(2)
        for name in re.findall(r"`([^`]+)`", cell)
        if "/" in name
    }
    assert len(named) > 60
    missing = {
        name
        for name in named
        if not any((ROOT / base / name).exists() for base in ("csrc", "beanstalkd_py"))
    }
    assert not missing


def test_no_document_cites_a_file_outside_of_the_tree() -> None:
    outside = re.compile(r"\.\./shared|\b(?:BEHAVIOUR|DESIGN|ROCKETMQ|SPARK|STYLE)\.md")
    citing = [
        path
        for path in tree_files()
        if path.endswith((".md", ".py", ".c", ".h", ".toml", ".yml"))
        and path != "tests/docs/test_names.py"
        and outside.search((ROOT / path).read_text(errors="replace"))
    ]
    assert not citing


def test_every_folder_of_tests_is_described() -> None:
    described = document("tests/README.md").code
    folders = {
        f"{path.removeprefix('tests/').rsplit('/', 1)[0]}/"
        for path in tree_files()
        if re.fullmatch(r"tests/.+/test_\w+\.py", path)
    }
    assert not folders - described


def test_front_pages_are_short() -> None:
    lines = {
        name: len(document(name).text.splitlines()) for name in ("README.md", "ARCHITECTURE.md")
    }
    assert lines["README.md"] <= 150
    assert lines["ARCHITECTURE.md"] <= 110


def contexts() -> list[click.Context]:
    """Return a context for each command and subcommand."""
    found = [click.Context(cli, info_name=PROGRAM)]
    for names in COMMANDS.values():
        for name in names:
            found += below(found[0], name)
    return found


def below(parent: click.Context, name: str) -> list[click.Context]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    # With its settings, because commands keep the option of their first help.
    context = click.Context(command, parent, name, **command.context_settings)
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    return [context, *(one for sub in names for one in below(context, sub))]


def option_names(context: click.Context) -> set[str]:
    return {
        name
        for param in context.command.params
        if not getattr(param, "hidden", False)
        for name in (*param.opts, *param.secondary_opts)
    }
