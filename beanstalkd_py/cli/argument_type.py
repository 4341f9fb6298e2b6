"""Base class of the types of options and arguments."""

from __future__ import annotations

from typing import Any

import click


class ArgumentType(click.ParamType):  # type: ignore[type-arg]
    """A type that `parse` converts; the message of its ValueError becomes a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default, or a value that was converted before
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text: str) -> Any:
        """Convert the text of the command line. Raises ValueError with a message for users."""
        raise NotImplementedError
