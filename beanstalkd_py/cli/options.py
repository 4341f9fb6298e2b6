"""Declarations of options: of any kind, of files and folders, and --json."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py.cli.argument_types import Number
from beanstalkd_py.quantities import INT64_MAX

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorator = Callable[[Any], Any]


def option(names: str, text: str = "", kind: Any = None, **settings: Any) -> Decorator:
    """Return click's option with its names, help text and type.

    The help shows a default unless it is 0, empty, or of a flag.
    """
    default = settings.get("default")
    settings.setdefault("show_default", bool(default) and default is not True)
    return click.option(*names.split(), type=kind, help=text or None, **settings)


def count_option(
    names: str, text: str, what: str, minimum: int = 0, maximum: int = INT64_MAX, **settings: Any
) -> Decorator:
    """Return an option whose value is a number of `what`, such as jobs or bytes."""
    return option(names, text, Number(f"a number of {what}", minimum, maximum), **settings)


def in_order(*options: Decorator) -> Decorator:
    """Return a decorator that adds these options, which the help lists in this order."""

    def decorate(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


def _completion(kind: str) -> Callable[..., list[CompletionItem[Any]]]:
    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return complete


complete_file = _completion("file")
complete_folder = _completion("dir")
file_option = partial(option, metavar="FILE", shell_complete=complete_file)
folder_option = partial(option, metavar="DIR", shell_complete=complete_folder)

AS_JSON = option("--json as_json", "Print JSON.", is_flag=True)
