"""Operations on a whole server: its options, policies and schedules."""

from __future__ import annotations

from collections.abc import Mapping

import gevent

from beanstalkd_py import errors
from beanstalkd_py.console.operations.operation import (
    Arguments,
    Plan,
    Planner,
    Progress,
)
from beanstalkd_py.console.target import Target
from beanstalkd_py.server.policy_settings import parse_policy
from beanstalkd_py.server.tube_policies import policy_values

COMPACT_RATIO = 1.1
"""Bytes of the files for each live byte that end a compaction."""


def plan_drain(target: Target, arguments: Arguments) -> Plan:
    on = arguments.get("on")
    if not isinstance(on, bool):
        raise errors.ToolUsageError("on: give true or false")
    with target.control_client() as control:
        is_draining = control.ask("drain")["draining"]
    now = "refused" if is_draining else "accepted"
    return Plan(1, f"{'Refuse' if on else 'Accept'} new jobs, which are {now} now")


def run_drain(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        answer = control.ask("drain", on=arguments.get("on"))
    progress.add(1)
    return "New jobs are refused" if answer["draining"] else "New jobs are accepted"


def plan_request(text: str) -> Planner:
    def plan(target: Target, arguments: Arguments) -> Plan:
        with target.control_client():
            return Plan(1, text)

    return plan


def run_compact(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        for _ in control.parts("compact", ratio=COMPACT_RATIO):
            gevent.sleep(0)
    progress.add(1)
    return "Compacted the binlogs"


def run_reload(target: Target, arguments: Arguments, progress: Progress) -> str:
    with target.control_client() as control:
        answer = control.ask("reload")
    progress.add(1)
    applied, waiting = (", ".join(answer[name]) or "none" for name in ("applied", "waiting"))
    return f"Read the options again; changed: {applied}; after a restart: {waiting}"


def _text(arguments: Arguments, name: str) -> str:
    text = arguments.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= 1000:
        raise errors.ToolUsageError(f"{name}: give a text")
    return text


def _policy(arguments: Arguments) -> Mapping[str, object]:
    policy = arguments.get("policy")
    if not isinstance(policy, dict) or not isinstance(policy.get("tube"), str):
        raise errors.ToolUsageError("policy: give its settings, and the pattern as tube")
    settings = {name: value for name, value in policy.items() if name != "tube"}
    try:
        return policy_values(parse_policy(policy["tube"], settings))
    except ValueError as error:
        raise errors.ToolUsageError(f"policy: {error}") from error


def _online_policy(target: Target, pattern: str) -> str | None:
    """Return the settings of an online policy as a text; None if there is none."""
    with target.control_client() as control:
        for row in control.parts("policies"):
            if (row["pattern"], row["from"]) == (pattern, "online"):
                names = row.keys() - {"pattern", "from"}
                return ", ".join(f"{name} {row[name]}" for name in sorted(names)) or "no limits"
    return None


def plan_policy_set(target: Target, arguments: Arguments) -> Plan:
    pattern = str(_policy(arguments)["pattern"])
    before = _online_policy(target, pattern)
    return Plan(1, f"Set the policy of {pattern}" + (f", now {before}" if before else ""))


def run_policy_set(target: Target, arguments: Arguments, progress: Progress) -> str:
    policy = _policy(arguments)
    with target.control_client() as control:
        control.ask("policy-set", policy=policy)
    progress.add(1)
    return f"Set the policy of {policy['pattern']}"


def plan_policy_unset(target: Target, arguments: Arguments) -> Plan:
    pattern = _text(arguments, "pattern")
    before = _online_policy(target, pattern)
    if before is None:
        raise errors.RefusedError("NOT_FOUND", f"no policy {pattern} was set online")
    return Plan(1, f"Unset the online policy of {pattern}, now {before}")


def run_policy_unset(target: Target, arguments: Arguments, progress: Progress) -> str:
    pattern = _text(arguments, "pattern")
    with target.control_client() as control:
        control.ask("policy-unset", pattern=pattern)
    progress.add(1)
    return f"Unset the online policy of {pattern}"


def plan_schedule_run(target: Target, arguments: Arguments) -> Plan:
    name = _text(arguments, "name")
    with target.control_client() as control:
        if all(row["name"] != name for row in control.parts("schedules")):
            raise errors.RefusedError("NOT_FOUND", f"there is no schedule {name}")
    return Plan(1, f"Put the job of schedule {name} now")


def run_schedule_run(target: Target, arguments: Arguments, progress: Progress) -> str:
    name = _text(arguments, "name")
    with target.control_client() as control:
        control.ask("schedule-run", name=name)
    progress.add(1)
    return f"Put the job of schedule {name}"
