"""The generated references contain every command and every option."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType

import pytest
from docs.documents import ROOT, document
from docs.test_names import contexts, option_names

MARKER = re.compile(r"^% (commands|serve-settings|command: (.+))$", re.MULTILINE)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    path = ROOT / "docs" / "extensions" / "command_reference.py"
    spec = importlib.util.spec_from_file_location("command_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generated(reference: ModuleType, name: str) -> str:
    source = [document(name).text]
    reference._replace_markers(None, name, source)
    assert not MARKER.search(source[0])
    return source[0]


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/man/beanstalkd-py.md"])
def test_every_command_is_in_the_reference(reference: ModuleType, name: str) -> None:
    text = generated(reference, name)
    for context in contexts()[1:]:
        assert f"{context.command_path} " in text


def test_every_option_of_serve_is_in_its_manual_page(reference: ModuleType) -> None:
    text = generated(reference, "docs/man/beanstalkd-py-serve.md")
    serve = next(one for one in contexts() if one.info_name == "serve")
    assert not {name for name in option_names(serve) if f"`{name}" not in text}


def test_public_modules_list_their_names() -> None:
    modules = re.findall(r"^\| `(beanstalkd_py\.[a-z_.]+)` \|", document("docs/api.md").text, re.M)
    assert len(modules) == 6
    for name in modules:
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or ["BeanstalkdError"]
        assert all(hasattr(module, exported) for exported in names)
        assert set(names) <= set(dir(module)), "Sphinx documents the names of dir()"


def test_every_setting_is_in_the_configuration(reference: ModuleType) -> None:
    text = generated(reference, "docs/configuration.md")
    settings = re.findall(
        r"^#?([a-z-]+) = ", (ROOT / "systemd/beanstalkd-py.toml").read_text(), re.M
    )
    assert len(settings) > 25
    assert not {name for name in settings if f"`--{name}`" not in text}
