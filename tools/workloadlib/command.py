"""The command line of tools/workload."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from pathlib import Path

from benchlib.command import positive, report

from . import ContradictionError, WorkloadError
from .connection import Connection
from .driver import RunResult, drive
from .event_log import LogWriter
from .profiles import PROFILES, Settings
from .servers import OURS, C, ServerOptions, running_server

MOST_TUBES = 100_000
MOST_TUBES_C = 10_000
"""C beanstalkd searches tubes linearly: ten times as many take a hundred times as long."""
SLOWEST = 0.001
"""Pauses of seconds become hours; sleep() rejects much longer ones."""
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

EXIT_CONTRADICTION = 1
EXIT_USAGE = 2

EPILOG = """\
profiles:
{profiles}

examples:
  tools/workload --jobs 100000 --seed 1 --binlog-dir /tmp/w --log /tmp/w.jsonl
      100,000 jobs through a server of beanstalkd_py, with its binlog in /tmp/w
  tools/workload --jobs 100000 --seed 1 --server c --binlog-dir /tmp/c --log /tmp/c.jsonl
      the same commands sent to C beanstalkd
  tools/workload --bytes 2G --seed 7 --profile failing --workers 2 --binlog-dir /tmp/w \\
                 --history /tmp/h --log /tmp/w.jsonl
      2 GiB of entries by two workers, and finished jobs in a history
  tools/workload --check /tmp/w.jsonl /tmp/w --history /tmp/h
      compares the log with binlog and history

Runs with the same settings send the same commands in the same order over all connections, and get
the same ids. Times and numbers of files differ.

Exit status: 0 everything agrees, 1 a disagreement, 2 usage error or impossible run.
"""


def build_parser() -> argparse.ArgumentParser:
    lines = (f"  {profile.name:<8} {profile.help}" for profile in PROFILES.values())
    parser = argparse.ArgumentParser(
        prog="workload",
        description="Make a binlog of any size by driving a real server, and a log of every"
        " event, one JSON line each.",
        epilog=EPILOG.format(profiles="\n".join(lines)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--jobs", type=positive, metavar="N", help="number of jobs to put")
    add("--bytes", type=size, metavar="B", help="bytes of entries, instead of --jobs (K, M, G)")
    add("--seed", type=int, default=0, help="seed of the random generator (%(default)s)")
    most = f"(%(default)s; at most {MOST_TUBES}, with C beanstalkd {MOST_TUBES_C})"
    add("--tubes", type=positive, default=10, metavar="K", help=most)
    add("--profile", choices=PROFILES, default="mixed", help="see below (%(default)s)")
    add("--producers", type=positive, default=4, help="connections that put (%(default)s)")
    add("--consumers", type=positive, default=6, help="connections that reserve (%(default)s)")
    add(
        "--speed",
        type=float,
        default=0.0,
        metavar="X",
        help="divisor of the pauses between bursts; 0: no pauses (%(default)s)",
    )
    add(
        "--server",
        default=OURS,
        metavar=f"{OURS}|{C}|HOST:PORT",
        help="beanstalkd_py or C beanstalkd, started by this tool, or a running server"
        " (%(default)s)",
    )
    add("--binlog-dir", type=Path, metavar="DIR", help="new binlog folder of the started server")
    add("--binlog-size", type=size, default=10 << 20, help="size of a binlog file (10M)")
    add("--max-job-size", type=size, default=65_535, help="-z of the server (%(default)s)")
    add("--fsync-ms", type=int, default=50, metavar="MS", help="-f of the server (%(default)s)")
    add("--history", type=Path, metavar="DIR", help="history of the server, also for --check")
    add("--workers", type=positive, default=1, metavar="N", help="of beanstalkd_py (%(default)s)")
    add(
        "--keep-files",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="restore files that the server removes, so that the folder has every entry",
    )
    add("--truncate", type=int, default=0, metavar="N", help="tubes truncated at the end (0)")
    add("--log", type=Path, metavar="FILE", help="path of the log")
    add("--check", nargs=2, type=Path, metavar=("LOG", "BINLOG_DIR"), help="compare these")
    return parser


def size(text: str) -> int:
    matched = re.fullmatch(r"([1-9]\d{0,14})([KMG]?)", text.upper())
    if matched is None:
        raise argparse.ArgumentTypeError(f"{text}: use a number of bytes such as 1048576, 1M")
    return int(matched[1]) * UNITS[matched[2]]


def settings_from(options: argparse.Namespace) -> Settings:
    if (options.jobs is None) == (options.bytes is None):
        raise WorkloadError("give either --jobs N or --bytes B")
    if options.log is None:
        raise WorkloadError("--log FILE is missing; give a path for the log")
    if options.truncate < 0:
        raise WorkloadError("--truncate cannot be below 0")
    if options.speed != 0 and not SLOWEST <= options.speed < math.inf:
        raise WorkloadError(f"--speed {options.speed}: give 0, or a number from {SLOWEST} on")
    most = MOST_TUBES_C if options.server == C else MOST_TUBES
    if options.tubes > most:
        raise WorkloadError(f"--tubes {options.tubes}: {most} at most, or a run takes minutes")
    if options.truncate and options.server == C:
        raise WorkloadError("--truncate needs a server of ours: C beanstalkd has no such command")
    if options.max_job_size < 100:
        raise WorkloadError("--max-job-size: at least 100 bytes")
    return Settings(
        jobs=options.jobs or 0,
        size=options.bytes or 0,
        seed=options.seed,
        tubes=options.tubes,
        profile=PROFILES[options.profile],
        producers=options.producers,
        consumers=options.consumers,
        truncate=options.truncate,
        max_job_size=options.max_job_size,
        speed=options.speed,
    )


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    wanted = ServerOptions(
        server=options.server,
        binlog=options.binlog_dir,
        history=options.history,
        workers=options.workers,
        binlog_size=options.binlog_size,
        max_job_size=options.max_job_size,
        fsync_ms=options.fsync_ms,
        keep=options.keep_files,
    )
    kind = wanted.server if wanted.server in (OURS, C) else "other"
    facts = {"server": kind, "workers": wanted.workers, "history": wanted.history is not None}
    connections: list[Connection] = []
    with contextlib.ExitStack() as stack:
        stack.callback(close, connections)
        # The server ends first, because a closed connection releases its jobs.
        target = stack.enter_context(running_server(wanted))
        log = stack.enter_context(contextlib.closing(LogWriter(options.log)))
        log.begin({**settings.to_json(), **facts})
        result = drive(settings, target, connections, log)
    return report_run(result)


def close(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()


def report_run(result: RunResult) -> int:
    rate = result.events / result.seconds
    report(
        f"{result.jobs} jobs, {result.events} events, {result.entry_bytes} bytes of entries"
        f" in {result.seconds:.1f} s: {rate:,.0f} events/s"
    )
    for wrong in result.wrong:
        report(f"wrong: {wrong}")
    return EXIT_CONTRADICTION if result.wrong else 0


def check(options: argparse.Namespace) -> int:
    from .check import CheckResult
    from .check import check as check_binlog
    from .check_history import HistoryResult, check_history
    from .job_log import read_job_log

    log, folder = options.check
    job_log = read_job_log(log)
    results: list[CheckResult | HistoryResult] = [check_binlog(job_log, folder)]
    if options.history is not None:
        results.append(check_history(job_log, options.history))
    for result in results:
        report(result.summary())
    wrong = [text for result in results for text in result.wrong]
    for text in wrong:
        report(f"wrong: {text}")
    return EXIT_CONTRADICTION if wrong else 0


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    try:
        return check(options) if options.check else run(options)
    except WorkloadError as error:
        report(f"workload: {error}")
        return EXIT_CONTRADICTION if isinstance(error, ContradictionError) else EXIT_USAGE
    except KeyboardInterrupt:
        report("workload: interrupted; the log has no last line")
        return 130
