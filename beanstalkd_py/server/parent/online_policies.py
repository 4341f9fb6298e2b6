"""Tube policies that an operator has set online, in a file of the binlog folder.

They precede the policies of the configuration file. The policy that was set last comes first.
"""

from __future__ import annotations

import json
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.binlog.layout import POLICIES
from beanstalkd_py.binlog.ownership import creating_as_owner_of
from beanstalkd_py.core.tube_policy import TubePolicy
from beanstalkd_py.history.files.layout import write_file
from beanstalkd_py.regular_file import read_regular
from beanstalkd_py.server.tube_policies import policy_from, policy_values

Policies = tuple[TubePolicy, ...]


def load_policies(folder: str) -> Policies:
    """Return the policies of a binlog folder. Raises BinlogFolderError."""
    path = Path(folder) / POLICIES
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise errors.BinlogFolderError(f"cannot read {path}: {error.strerror}") from error
    try:
        return tuple(policy_from(values) for values in json.loads(data))
    except (ValueError, TypeError, AttributeError) as error:
        text = f"cannot read {path}: {error}; correct or remove the file"
        raise errors.BinlogFolderError(text) from error


def save_policies(folder: str, policies: Policies) -> None:
    """Replace the file durably. Raises OSError."""
    text = json.dumps([policy_values(one) for one in policies], indent=1)
    with creating_as_owner_of(folder):
        write_file(Path(folder) / POLICIES, text.encode() + b"\n")


def with_policy(policies: Policies, policy: TubePolicy) -> Policies:
    return (policy, *without_policy(policies, policy.pattern))


def without_policy(policies: Policies, pattern: str) -> Policies:
    return tuple(one for one in policies if one.pattern != pattern)
