"""Retired names, sizes of folders, and circles of includes and imports."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (".py", ".pyi", ".c", ".h")
MOST_FILES = 20

RETIRED = re.findall(
    r"\w+",
    """
    courtesy doubt doubtful doubts errand errands heard heed keeper keepers ledger lives luggage
    mail mails patience roster said say says told untold weir whoever whom wish wished wishes
    """,
)
"""Parts of names that docs/internals/glossary.md has replaced."""

RETIRED_IN_PROSE = {"heard", "hears", "tells", "told", "whoever", "whom"}
"""Words that docstrings, comments and documents avoid: name the mechanism and the object."""


def tracked(*folders: str, suffixes: tuple[str, ...] = SOURCES) -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *folders], capture_output=True, check=True
    )
    paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.suffix in suffixes and path.exists()]


CODE = tracked("csrc", "beanstalkd_py", "tools", "tests")


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_circles_are_found() -> None:
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": []}
    assert circles(graph) == [["a", "b", "c"]]


def include_graph() -> dict[str, set[str]]:
    """Map each unit, a .c file with its header, to the units that it includes."""
    csrc = ROOT / "csrc"
    graph: dict[str, set[str]] = {}
    for path in tracked("csrc"):
        unit = str(path.relative_to(csrc).with_suffix(""))
        included = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        graph.setdefault(unit, set()).update(str(Path(name).with_suffix("")) for name in included)
    return {unit: others - {unit} for unit, others in graph.items()}


def test_no_include_circles() -> None:
    graph = include_graph()
    unknown = {name for others in graph.values() for name in others} - graph.keys()
    assert not unknown, "include paths are relative to csrc/"
    assert circles(graph) == []


def test_folders_include_only_earlier_ones() -> None:
    """The order of the core's folders is that of csrc/api/types.h; other folders are not in it."""
    text = (ROOT / "csrc/api/types.h").read_text()
    listed = re.search(r"folders before it only: ([\w,* \n]+)\.", text)
    assert listed
    order = re.findall(r"\w+", listed[1])
    assert len(order) > 10
    later = [
        f"{unit} includes {other}"
        for unit, others in include_graph().items()
        for other in others
        if (folder := unit.split("/")[0]) in order
        and order.index(folder) < order.index(other.split("/")[0])
    ]
    assert later == []


def import_graph() -> dict[str, set[str]]:
    """Map each module to the modules that it imports, except for type checking."""
    modules = {}
    for path in tracked("beanstalkd_py"):
        if path.suffix == ".py":
            parts = path.relative_to(ROOT).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {}
    for name, path in modules.items():
        graph[name] = set(imports(ast.parse(path.read_text()), modules)) - {name}
    return graph


def imports(tree: ast.AST, modules: Mapping[str, Path]) -> Iterable[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        else:
            yield from imports(node, modules)


def test_no_import_circles() -> None:
    assert circles(import_graph()) == []


def test_folders_stay_small() -> None:
    counts: dict[Path, int] = {}
    for path in CODE:
        counts[path.parent] = counts.get(path.parent, 0) + (path.name != "__init__.py")
    large = {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MOST_FILES}
    assert large == {}


def words(text: str) -> set[str]:
    """Return the lower-case parts of all identifiers: `bs_openJob` has bs, open and job."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)
    return {part.lower() for part in parts}


def identifiers(path: Path) -> str:
    """Return the code of a file without comments and string literals."""
    text = path.read_text()
    if path.suffix in (".c", ".h"):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
        return re.sub(r'"(?:[^"\\\n]|\\.)*"', " ", text)
    names = []
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                names.append(value)
    return " ".join(names)


def uses_of(
    retired: Iterable[str], paths: Iterable[Path], part: Callable[[Path], str]
) -> dict[str, list[str]]:
    """Map each path to the retired words in a part of its file."""
    found = {}
    for path in paths:
        # Most files do not have any of these words, and parsing a file takes long.
        if words(f"{path.stem} {path.read_text()}").intersection(retired):
            used = sorted(words(part(path)).intersection(retired))
            if used:
                found[str(path.relative_to(ROOT))] = used
    return found


def test_no_retired_names() -> None:
    found = uses_of(RETIRED, CODE, lambda path: f"{path.stem} {identifiers(path)}")
    assert found == {}, "docs/internals/glossary.md has the names to use"


def prose(path: Path) -> str:
    """Return the docstrings and comments of a source file; all of a document, script or setting."""
    text = path.read_text()
    if path.suffix not in SOURCES:
        return text
    if path.suffix in (".c", ".h"):
        return " ".join(re.findall(r"/\*.*?\*/", text, re.DOTALL))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    parts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.append(str(node.value.value))
    return " ".join(parts)


def test_no_retired_words_in_prose() -> None:
    others = (".md", ".toml", ".yml", ".json", ".service", ".socket", ".default", ".conf", ".js")
    scripts = tracked("tools", ".ci", suffixes=("", ".sh"))
    found = uses_of(RETIRED_IN_PROSE, [*CODE, *scripts, *tracked(suffixes=others)], prose)
    assert found == {}, "name the subject, and use verbs such as returns, reports or sends"
