"""`beanstalkd-py doctor`: checks of this machine for a server, with advice."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from beanstalkd_py.cli.connection_options import CONTEXT, Server, server_options
from beanstalkd_py.cli.options import folder_option, option
from beanstalkd_py.cli.output import write_json, write_line

if TYPE_CHECKING:
    from beanstalkd_py.doctor.examination import Subject
    from beanstalkd_py.doctor.finding import Finding

PROBLEM_STATUS = 1
_STYLES = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "cyan"}
_VERDICT_WIDTH = 7
_CHECK_WIDTH = 14


@click.command(context_settings=CONTEXT)
@folder_option("-b --binlog-dir", "Binlog folder.")
@option(
    "--config",
    "Configuration file of the server, for its folder, address, workers, user and replication.",
    click.Path(exists=True, dir_okay=False),
    metavar="FILE",
)
@option("--quick", "Do not read binlog entries.", is_flag=True)
@option("--full", "Read all binlog entries, whatever their size.", is_flag=True)
@server_options(
    json="Print a JSON array with an object for each check: check, verdict, found, advice."
)
def doctor(
    server: Server,
    as_json: bool,
    binlog_dir: str | None,
    config: str | None,
    quick: bool,
    full: bool,
) -> int:
    """Check this machine, a binlog folder and its server.

    Each line has a verdict: ok, warning, problem, or unknown if the check is not possible here.
    The command changes nothing. To measure syncs it writes an unnamed file to the folder for up to
    two seconds. Entries of a binlog larger than 1 GiB are read only with --full.

    \b
    Examples:
      beanstalkd-py doctor -b /var/lib/beanstalkd-py
      beanstalkd-py doctor --config /etc/beanstalkd-py.toml
      beanstalkd-py doctor --json -b data \\
          | jq -r '.[] | select(.verdict == "problem") | .advice'

    Exit status 1 if there is a problem.
    """
    from beanstalkd_py.doctor.examination import examine

    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    subject = _subject(server, binlog_dir, config, quick, full)
    findings = []
    for finding in examine(subject):
        findings.append(finding)
        if not as_json:  # print at once, because some checks take seconds
            write_line(_line(finding))
    if as_json:
        write_json([{"check": finding.check, **asdict(finding)} for finding in findings])
    elif subject.binlog_dir is None:
        click.echo("no folder was checked; use --binlog-dir or --config", err=True)
    return PROBLEM_STATUS if any(finding.verdict == "problem" for finding in findings) else 0


def _subject(
    server: Server, binlog_dir: str | None, config: str | None, quick: bool, full: bool
) -> Subject:
    from beanstalkd_py.cli.server.serve import serve, serve_options
    from beanstalkd_py.doctor.examination import BOUNDED, FULL, QUICK, Subject
    from beanstalkd_py.doctor.replication import Queue
    from beanstalkd_py.server.options import ServeOptions

    configured = ServeOptions()
    if config is not None:
        configured = serve_options(serve.make_context("serve", ["--config", config]))
    address = str(server.address)
    if configured.address_given:
        listen = configured.listen
        address = listen if listen.startswith("unix:") else f"{listen}:{configured.port}"
    replicated = None
    if configured.replicate is not None:
        replicated = Queue(
            configured.replicate,
            configured.replicate_creds,
            configured.replicate_tls_ca,
            configured.replicate_copies,
        )
    folder = binlog_dir or configured.binlog_dir
    return Subject(
        address=address,
        binlog_dir=None if folder is None else Path(folder),
        file_size=configured.file_size,
        workers=configured.workers or None,
        user=configured.user,
        control=configured.control,
        read_bytes=QUICK if quick else FULL if full else BOUNDED,
        timeout_s=server.timeout_s,
        replicated=replicated,
    )


def _line(finding: Finding) -> str:
    verdict = f"{finding.verdict:<{_VERDICT_WIDTH}}"
    if sys.stdout.isatty():
        verdict = click.style(verdict, fg=_STYLES[finding.verdict])
    line = f"{verdict}  {finding.check:<{_CHECK_WIDTH}}  {finding.found}"
    if not finding.advice:
        return line
    return f"{line}\n{'':{_VERDICT_WIDTH}}  {'':{_CHECK_WIDTH}}  -> {finding.advice}"
