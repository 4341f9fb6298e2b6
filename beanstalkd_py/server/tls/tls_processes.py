"""All TLS processes as one receiver, which spreads connections over them.

A connection stays with its process, because its TLS state cannot move to another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from beanstalkd_py.server.accept.acceptor import Acceptor, Receiver
from beanstalkd_py.server.options import ServeOptions
from beanstalkd_py.server.process.launch import ChildProcess
from beanstalkd_py.server.process.shared_memory import SharedMemory
from beanstalkd_py.server.tls.certificates import Certificates
from beanstalkd_py.server.tls.tls_supervisor import HANDSHAKES, TlsSupervisor

TLS_FULL = f"each TLS process has {HANDSHAKES} handshakes or no free descriptors, or restarts"


class TlsProcesses:
    """The Receiver of connections for TLS."""

    def __init__(self, supervisors: Sequence[TlsSupervisor]) -> None:
        self.supervisors = supervisors

    def serve(self, receiver: Receiver) -> None:
        for one in self.supervisors:
            one.serve(receiver)

    def change(self, options: ServeOptions, certificates: Certificates | None) -> None:
        """Apply new options, and new certificates, if any, to connections accepted from now on."""
        for one in self.supervisors:
            one.change(options, certificates)

    def run_when_ready(self, acceptor: Acceptor) -> None:
        """Accept as soon as each was ready once, so that the first clients are spread over all."""
        for one in self.supervisors:
            one.was_ready.wait()
        acceptor.run()

    def uncounted_connections(self) -> int:
        return sum(one.uncounted_connections() for one in self.supervisors)

    def free_slots(self) -> int:
        return sum(max(0, one.free_slots()) for one in self.supervisors)

    def send(self, fds: list[int]) -> None:
        for fd in fds:
            free = (one for one in self.supervisors if one.free_slots() > 0)
            for one in sorted(free, key=TlsSupervisor.rank):
                if one.pass_copy(fd):
                    break  # otherwise the process has just ended
            os.close(fd)


def start_tls_processes(
    count: int,
    start: Callable[[int], ChildProcess],
    certificates: Certificates,
    shared: SharedMemory,
    descriptors: int,
) -> TlsProcesses:
    """Start processes with the numbers from 0; `descriptors` is their RLIMIT_NOFILE."""
    shared.pointer.tls_processes = count
    supervisors = []
    for index in range(count):
        component = f"TLS {index}" if count > 1 else "TLS"
        counters = shared.tls_counters(index)
        starter = partial(start, index)
        supervisors.append(TlsSupervisor(component, starter, certificates, counters, descriptors))
    return TlsProcesses(supervisors)
