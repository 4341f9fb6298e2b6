"""Shell completion of options and arguments that name a file or a folder."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_file(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[Any]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_folder(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[Any]]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


file_option = partial(click.option, metavar="FILE", shell_complete=complete_file)
folder_option = partial(click.option, metavar="DIR", shell_complete=complete_folder)
