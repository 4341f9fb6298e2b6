"""How a worker learns whom it serves by way of TLS: the plain socket has the client's name.

The end that stays with TLS is bound to an abstract address that ends with the client's, which
csrc/runtime/peer_address.c reads. Nobody else can make a worker believe in one: it looks who has
bound it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

_PREFIX = b"\0beanstalkd-py/tls/"

_serial = itertools.count()


def bind_name(end: socket.socket, client: str) -> None:
    """Names one end of a pair. One that cannot be named is merely shown without."""
    # Not the client alone: its port may be in use again before the last pair has gone.
    name = _PREFIX + b"%d/%d/%b" % (os.getpid(), next(_serial), client.encode())
    with contextlib.suppress(OSError):
        end.bind(name)
