"""The header of `top`: state and rates of the whole server."""

from __future__ import annotations

import time

from beanstalkd_py.admin.local_control import WorkerRow
from beanstalkd_py.admin.tube_survey import Survey
from beanstalkd_py.cli.formatting import short_number, short_rate, short_time
from beanstalkd_py.plural import counted

MIB = 1 << 20
LINES = 4


def header_lines(survey: Survey, address: str, interval_s: float) -> list[str]:
    """Return LINES lines of any width, each with the most important values first."""
    server = survey.server
    clock = time.strftime("%H:%M:%S", time.localtime(survey.at))
    uptime = short_time(int(server.get("uptime", 0)))
    first = f"{address}  {clock}  up {uptime}  every {interval_s:g} s"
    return [first, _jobs(survey), _rates(survey), _processes(survey)]


def _jobs(survey: Survey) -> str:
    def count(key: str) -> str:
        return short_number(int(survey.server.get(key, 0)), 9)

    states = ", ".join(
        f"{count(f'current-jobs-{state}')} {state}"
        for state in ("ready", "reserved", "delayed", "buried")
    )
    tubes, connections = (
        f"{count(key)} {noun if count(key) == '1' else noun + 's'}"
        for key, noun in (("current-tubes", "tube"), ("current-connections", "connection"))
    )
    return f"{tubes}, {connections}  jobs: {states}"


def _rates(survey: Survey) -> str:
    rates = survey.rates
    done = ", ".join(
        f"{short_rate(rate, 7)} {event}"
        for event, rate in (
            ("put", rates.puts),
            ("reserve", rates.reserves),
            ("delete", rates.deletes),
            ("timeouts", rates.timeouts),
        )
    )
    return f"per second: {done}  clients waiting: {survey.server.get('current-waiting', '?')}"


def _processes(survey: Survey) -> str:
    cpu = "-" if survey.rates.cpu is None else f"{survey.rates.cpu:.0%}"
    parts = [f"cpu {cpu}"]
    if survey.workers is None:
        parts.append("reserves of tubes and oldest: unknown without the control socket")
    else:
        parts += _workers(survey.workers)
    if survey.server.get("draining") == "true":
        parts.insert(0, "DRAINING")
    return "  ".join(parts)


def _workers(rows: list[WorkerRow]) -> list[str]:
    serving = sum(row["state"] == "serving" for row in rows)
    memory = sum(row["memory-bytes"] for row in rows) / MIB
    restarts = sum(row["restarts"] for row in rows)
    parts = [f"memory {memory:.0f} MiB", f"{serving} of {counted(len(rows), 'worker')} serving"]
    return [*parts, counted(restarts, "restart")] if restarts else parts
