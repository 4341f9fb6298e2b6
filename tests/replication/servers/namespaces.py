"""A network of namespaces: packets are dropped as by a real partition. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
NETWORK = "10.77.0"
HUB_HOST = f"{NETWORK}.254"


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@dataclass(frozen=True)
class Machine:
    """A namespace with one address in the network of `hub`."""

    name: str
    host: str
    hub: str
    cable: str

    def command(self, *words: str) -> list[str]:
        """Return a command that runs another one on this machine."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut_off(self) -> None:
        """Drop everything that it sends and receives."""
        ip("-n", self.hub, "link", "set", self.cable, "down")

    def drop_to(self, *hosts: str) -> None:
        """Drop what it sends to these."""
        for host in hosts:
            ip("-n", self.name, "route", "add", "blackhole", f"{host}/32")

    def mend(self) -> None:
        ip("-n", self.hub, "link", "set", self.cable, "up")
        ip("-n", self.name, "route", "flush", "type", "blackhole")


@contextlib.contextmanager
def network(count: int) -> Iterator[list[Machine]]:
    """Yield machines, while this thread and threads that it starts are in their network, too."""
    hub = f"hub-{os.getpid()}"
    names = [f"machine-{os.getpid()}-{number}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        for name in (hub, *names):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "address", "add", f"{HUB_HOST}/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        machines = []
        for number, name in enumerate(names):
            one = Machine(name, f"{NETWORK}.{number + 1}", hub, f"cable{number}")
            peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", hub, "link", "add", one.cable, *peer)
            ip("-n", hub, "link", "set", one.cable, "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{one.host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            machines.append(one)
        with entered(hub):
            yield machines


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Let this thread use the network of a namespace."""
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        with (Path("/run/netns") / name).open("rb") as network:
            _enter(network.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(namespace, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
