"""`pipeline ship`: copy complete binlog files to a cluster's file system."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.binlog.read_commands import folder_usage_errors
from beanstalkd_py.cli.options import complete_folder, folder_option, option
from beanstalkd_py.cli.output import notice
from beanstalkd_py.cli.pipeline.output import INCOMPLETE
from beanstalkd_py.cli.pipeline.spark_options import usage_errors
from beanstalkd_py.plural import counted


@click.command()
@folder_option("-b --binlog folder", "Binlog folder of a server.", required=True)
@option(
    "--to target",
    "Folder for the folders of all hosts: s3://BUCKET/binlogs, gs://, abfs://, hdfs://, a path.",
    metavar="URL",
    shell_complete=complete_folder,
    required=True,
)
@option("--host", "Name of the host's folder.  [default: the name of this host]", metavar="NAME")
def ship(folder: str, target: str, host: str | None) -> int:
    """Copy complete binlog files to a file system that a cluster reads.

    Each file is copied once, to URL/HOST/binlog.N, and recorded in URL/HOST/_manifest.jsonl. A
    server may be running: the file that it writes to is copied by a later run, so run this
    regularly. It needs no Spark and no Java, only pyarrow (pip install 'beanstalkd_py[parquet]').
    Credentials and endpoints are those of the environment, such as AWS_ENDPOINT_URL.

    If the server has a history, it keeps files until they were copied, up to --history-backlog. To
    end that, remove the file 'shipped' from the binlog folder, or from each folder in it. Otherwise
    files that the server removes between two runs are missing, which is reported. A folder that
    was begun anew, by resharding for example, continues in URL/HOST~2.

    \b
    Examples:
      beanstalkd-py pipeline ship -b /var/lib/beanstalkd --to s3://queues/binlogs
      beanstalkd-py pipeline run timelines \\
          --input 's3://queues/binlogs/*' --output /srv/timelines

    Exit status 1 if files are missing or the copy failed, 2 for a usage error.
    """
    begun_mono = time.monotonic()
    with usage_errors(), folder_usage_errors():
        try:
            from beanstalkd_py.pipeline.binlogs.ship import ship as ship_folder
        except ModuleNotFoundError as error:
            text = "ship requires PyArrow; run pip install 'beanstalkd_py[parquet]'"
            raise errors.ToolUsageError(f"{text} ({error})") from error
        shipment = ship_folder(Path(folder), target, host or socket.gethostname())
    notice(
        f"copied {counted(shipment.files, 'file')}, {counted(shipment.size, 'byte')}, to"
        f" {shipment.target} in {time.monotonic() - begun_mono:.1f} s"
    )
    for missing in shipment.missing:
        notice(f"{missing} was removed before it was copied")
    return INCOMPLETE if shipment.missing else 0
