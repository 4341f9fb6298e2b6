"""Listening sockets: bound here, passed by a socket unit, or kept by systemd over a restart.

Does not import gevent, so that the server listens before slow imports.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beanstalkd_py import errors
from beanstalkd_py.server.accept.addresses import Address, InetAddress, UnixAddress

BACKLOG = 4096
"""Connections that the kernel queues during recovery; somaxconn limits it."""

FIRST_PASSED_FD = 3
KEPT_NAME = "kept-listener"
"""The name of sockets in the file descriptor store of the service, see `Notifier.store`."""


class Listener:
    """A non-blocking listening socket, and the socket file that `close` removes."""

    def __init__(self, sock: socket.socket, owned_path: str | None = None) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._path = owned_path
        self._inode = _inode(owned_path) if owned_path is not None else None

    def __str__(self) -> str:
        name = self.socket.getsockname()
        if self.socket.family == socket.AF_UNIX:
            return str(UnixAddress(os.fsdecode(name)))
        return str(InetAddress(name[0], name[1]))

    def listen(self) -> None:
        """Listen on a socket that was only bound. Raises AddressError."""
        try:
            self.socket.listen(BACKLOG)
        except OSError as error:
            raise errors.AddressError(f"cannot listen on {self}: {error.strerror}") from error

    def close(self) -> None:
        """Stop listening and remove the socket file, unless another server has replaced it."""
        self.socket.close()
        if self._path is not None and _inode(self._path) == self._inode:
            # The user of -u may lack write permission here. The next start replaces the file.
            with contextlib.suppress(OSError):
                os.remove(self._path)  # noqa: PTH107 - pathlib is a slow import
        self._path = None


@dataclass(slots=True)
class Sockets:
    """The sockets of a server. `no_control` is the reason if there is no control socket."""

    clients: list[Listener]
    control: Listener | None = None
    no_control: str = ""
    metrics: Listener | None = None
    tls: Listener | None = None
    console: Listener | None = None

    def close(self) -> None:
        for listener in (*self.clients, self.control, self.metrics, self.tls, self.console):
            if listener is not None:
                listener.close()


def bind(address: Address, *, listening: bool = True) -> Listener:
    """Listen on one address. Raises AddressError.

    A TCP socket that is not `listening` only keeps the address: connections are refused.
    """
    if isinstance(address, UnixAddress):
        return _bind_unix(address)
    return _bind_inet(address, listening)


@dataclass(slots=True)
class PassedListeners:
    """The sockets of a socket unit, and those that the last process of the service has stored."""

    activated: list[Listener] = field(default_factory=list)
    kept: list[Listener] = field(default_factory=list)

    def take_kept(self, address: Address) -> Listener | None:
        """Return a kept socket with this address, which belongs to the caller from now on."""
        if not self.kept or isinstance(address, UnixAddress):
            return None
        names = [(family, name) for family, _, _, _, name in _resolve(address)]
        for listener in self.kept:
            if (listener.socket.family, listener.socket.getsockname()) in names:
                self.kept.remove(listener)
                return listener
        return None

    def close_kept(self) -> None:
        """Stop listening on the kept sockets that nobody has taken."""
        for listener in self.kept:
            # Not only a close, because systemd has the socket, too. It drops a socket that was shut
            # down.
            with contextlib.suppress(OSError):
                listener.socket.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.kept.clear()


def passed_listeners(environ: Mapping[str, str], pid: int) -> PassedListeners:
    """Return the sockets that systemd passed to this process. Raises AddressError."""
    passed = PassedListeners()
    if environ.get("LISTEN_PID") != str(pid):
        return passed
    text = environ.get("LISTEN_FDS", "")
    if not text.isascii() or not text.isdigit():
        raise errors.AddressError(f"LISTEN_FDS is {text!r}, not a number")
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    for index in range(int(text)):
        is_kept = names[index : index + 1] == [KEPT_NAME]
        try:
            listener = _passed(FIRST_PASSED_FD + index)
        except errors.AddressError:
            if not is_kept:
                raise
            continue  # it was shut down, and systemd has not dropped it yet
        (passed.kept if is_kept else passed.activated).append(listener)
    return passed


def _passed(fd: int) -> Listener:
    try:
        sock = socket.socket(fileno=fd)
        listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise errors.AddressError(
            f"passed descriptor {fd} is not a socket: {error.strerror}"
        ) from error
    if not listening or sock.type != socket.SOCK_STREAM:
        raise errors.AddressError(f"passed socket {fd} is not a listening stream socket")
    os.set_inheritable(fd, False)
    if sock.family != socket.AF_UNIX:
        _set_tcp_options(sock)
    return Listener(sock)


def _bind_inet(address: InetAddress, listening: bool) -> Listener:
    failure: OSError | None = None
    for family, kind, protocol, _, sockaddr in _resolve(address):
        try:
            return _listen_inet(family, kind, protocol, sockaddr, listening)
        except OSError as error:
            failure = error
    reason = failure.strerror if failure is not None else "the host name has no address"
    raise errors.AddressError(f"cannot listen on {address}: {reason}") from failure


def _resolve(address: InetAddress) -> Sequence[tuple[int, int, int, str, tuple[object, ...]]]:
    """Return the results of getaddrinfo. Raises AddressError."""
    try:
        # Encode here, because getaddrinfo imports the slow codec "idna" for str.
        host = address.host.encode() if address.host.isascii() else address.host
        return socket.getaddrinfo(
            host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise errors.AddressError(f"cannot listen on {address}: {reason}") from error


def _listen_inet(
    family: int, kind: int, protocol: int, sockaddr: object, listening: bool
) -> Listener:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _set_tcp_options(sock)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(sockaddr)  # type: ignore[arg-type]
        if listening:
            sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return Listener(sock)


def _set_tcp_options(sock: socket.socket) -> None:
    # Accepted sockets inherit both options, which saves two system calls per connection.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _bind_unix(address: UnixAddress) -> Listener:
    try:
        _remove_stale(address)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(address.path)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise errors.AddressError(f"cannot listen on {address}: {error.strerror}") from error
    return Listener(sock, owned_path=address.path)


def _remove_stale(address: UnixAddress) -> None:
    """Remove a socket file without a listener. Raises AddressError for any other file."""
    try:
        mode = os.lstat(address.path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise errors.AddressError(
            f"cannot listen on {address}: the path exists and is not a socket; remove it"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(address.path) in (0, errno.EAGAIN):  # EAGAIN: its backlog is full
            raise errors.AddressError(f"cannot listen on {address}: another server listens there")
    os.remove(address.path)  # noqa: PTH107


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
