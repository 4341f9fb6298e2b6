"""A server with the protocol of S3 on loopback, and the environment of its clients."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from processes import eventually
from servers import free_port

BUCKET = "queues"
START_S = 60


@contextlib.contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Yield variables of the environment by which clients find the store, which has a bucket."""
    from pyarrow.fs import S3FileSystem

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: _accepts(port), START_S)
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        os.environ.update(variables)
        S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", allow_bucket_creation=True
        ).create_dir(BUCKET)
        yield variables
    finally:
        server.kill()
        server.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
