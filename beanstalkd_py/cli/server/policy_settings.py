"""Tube policies in a configuration file: `[tube."mails.*"]`."""

from __future__ import annotations

import json
from typing import Any

from beanstalkd_py.cli.argument_types import ArgumentType
from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.server.policy_settings import parse_policy
from beanstalkd_py.server.tube_policies import check_size

TABLE = "tube"
OPTION = "--tube-policies"
"""A hidden option with the checked policies as JSON, so that a file is read by one mechanism."""


def parse_table(table: Any) -> tuple[TubePolicy, ...]:
    """Return the policies of a file's table `tube`. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError(f'{TABLE}: must be tables such as [{TABLE}."mails.*"]')
    policies = []
    for pattern, settings in table.items():
        where = f"{TABLE}.{json.dumps(pattern)}"
        if not isinstance(settings, dict):
            raise ValueError(f"{where}: must be a table; quote a pattern that has dots")
        try:
            policies.append(parse_policy(pattern, settings))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    try:
        check_size(policies)
    except ValueError as error:
        raise ValueError(f"{TABLE}: {error}") from error
    return tuple(policies)


class PoliciesType(ArgumentType):
    """Policies as `words_of_table` encodes them."""

    name = "json"

    def parse(self, text: str) -> tuple[TubePolicy, ...]:
        return tuple(TubePolicy._make(fields) for fields in json.loads(text))


def words_of_table(table: Any) -> list[str]:
    """Return the policies of a file's table as an argument of a command line. Raises ValueError."""
    return [f"{OPTION}={json.dumps(parse_table(table))}"]
