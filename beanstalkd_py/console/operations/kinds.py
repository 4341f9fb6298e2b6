"""The kinds of operations: who may begin them, their arguments, dry run and execution."""

from __future__ import annotations

from collections.abc import Mapping

from beanstalkd_py.console.access.accounts import Role
from beanstalkd_py.console.operations import jobs, server
from beanstalkd_py.console.operations.job_lines import plan_import, run_import
from beanstalkd_py.console.operations.operation import (
    Kind,
    Planner,
    Runner,
)
from beanstalkd_py.console.operations.replay import (
    plan_replay,
    plan_undelete,
    run_replay,
    run_undelete,
)


def _kind(names: str, plan: Planner, run: Runner, *, can_stop: bool = False) -> Kind:
    return Kind(Role.OPERATE, frozenset(names.split()), plan, run, can_stop)


def _admin_kind(names: str, plan: Planner, run: Runner, *, can_stop: bool = False) -> Kind:
    return Kind(Role.ADMIN, frozenset(names.split()), plan, run, can_stop)


KINDS: Mapping[str, Kind] = {
    "kick": _kind("tube count ids filter", jobs.plan_kick, jobs.run_kick, can_stop=True),
    "delete": _kind("ids filter tube shape", jobs.plan_delete, jobs.run_delete, can_stop=True),
    "bury": _kind(
        "ids filter",
        jobs.plan_jobs("Bury", jobs.TO_BURY),
        jobs.run_jobs(jobs.bury, "BURIED", jobs.TO_BURY, "Buried"),
        can_stop=True,
    ),
    "redrive": _kind("tube ids shape rate", jobs.plan_redrive, jobs.run_redrive, can_stop=True),
    "replay": _kind(
        "tube from to event key body where to_tube pri delay ttr rate",
        plan_replay,
        run_replay,
        can_stop=True,
    ),
    "undelete": _kind("tube key offset to_tube", plan_undelete, run_undelete),
    "pause": _kind("tube seconds", jobs.plan_pause, jobs.run_pause),
    "put": _kind("tube body pri delay ttr", jobs.plan_put, jobs.run_put),
    "import": _kind("tube lines skip", plan_import, run_import, can_stop=True),
    "move": _kind("tube to states limit rate", jobs.plan_move, jobs.run_move, can_stop=True),
    "schedule-run": _kind("name", server.plan_schedule_run, server.run_schedule_run),
    "truncate": _admin_kind("tube states", jobs.plan_truncate, jobs.run_truncate, can_stop=True),
    "drain": _admin_kind("on", server.plan_drain, server.run_drain),
    "compact": _admin_kind("", server.plan_request("Compact the binlogs"), server.run_compact),
    "reload": _admin_kind("", server.plan_request("Read the options again"), server.run_reload),
    "policy-set": _admin_kind("policy", server.plan_policy_set, server.run_policy_set),
    "policy-unset": _admin_kind("pattern", server.plan_policy_unset, server.run_policy_unset),
}
