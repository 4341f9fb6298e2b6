"""One connection of a worker: reserves jobs, runs their handlers, and reconnects."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import greenstalk

from beanstalkd_py.client.synchronous import Client
from beanstalkd_py.client.worker.events import (
    BuryJob,
    Connected,
    Delivery,
    Disconnected,
    Finished,
    Outcome,
    ReleaseJob,
    Started,
    TooManyAttemptsError,
)
from beanstalkd_py.client.worker.hooks import Hooks
from beanstalkd_py.client.worker.keep_alive import KeepAlive
from beanstalkd_py.client.worker.retry import Backoff, Retry

RESERVE_S = 20
"""The timeout of each reserve. A server that has gone silently does not reply in time."""
REPLY_TIMEOUT_S = 30.0
STABLE_S = 10.0
"""The loss of a connection of this age does not count as a repeated failure."""

Function = Callable[[Delivery], object]


@dataclass(frozen=True, slots=True)
class Handler:
    """The function for the jobs of a tube, and when failed jobs run again."""

    function: Function
    retry: Retry


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of a worker that its connections need."""

    address: greenstalk.Address
    tls: ssl.SSLContext | None
    handlers: Mapping[str, Handler]
    reconnect: Backoff
    hooks: Hooks


@dataclass(frozen=True, slots=True)
class _Decision:
    outcome: Outcome
    delay: int = 0


def _decide(delivery: Delivery, retry: Retry, error: BaseException | None) -> _Decision:
    """Return how to finish a delivery whose handler returned or raised `error`."""
    if error is None:
        return _Decision(Outcome.DELETED)
    if isinstance(error, ReleaseJob):
        return _Decision(Outcome.RELEASED, error.delay)
    last = retry.max_attempts is not None and delivery.attempt >= retry.max_attempts
    if last or isinstance(error, BuryJob):
        return _Decision(Outcome.BURIED)
    return _Decision(Outcome.RELEASED, round(retry.backoff.delay(delivery.attempt)))


class Consumer:
    """A thread with a connection of its own, which holds one job at a time.

    This thread and the keep-alive thread share the connection. `_exchange` is the lock for one
    command and its reply.
    """

    def __init__(self, settings: Settings, keep_alive: KeepAlive, name: str) -> None:
        self._settings = settings
        self._keep_alive = keep_alive
        self._exchange = threading.Lock()
        self._stopping = threading.Event()
        self._state = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_busy = False
        self._held_id: int | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether the thread has started and not ended."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Reserve no more jobs; a running handler continues, and its job is finished."""
        with self._state:
            self._stopping.set()
            if not self._is_busy:
                self._disconnect()

    def abandon(self) -> None:
        """Close the connection, so that the server makes the job of a running handler ready."""
        with self._state:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # SSLSocket.shutdown would drop the TLS state while another thread reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began_mono = time.monotonic()
            try:
                self._consume()
            except Exception as error:
                if self._stopping.is_set():
                    return
                stable = time.monotonic() - began_mono > STABLE_S
                failures = 1 if stable else failures + 1
                pause_s = self._settings.reconnect.delay(failures)
                self._settings.hooks.emit(Disconnected(error, pause_s))
                self._stopping.wait(pause_s)

    def _consume(self) -> None:
        """Handle jobs until the worker stops. Raises an exception if the connection is lost."""
        opened = self._open()
        tubes = list(self._settings.handlers)
        try:
            with self._state:
                self._socket = opened
            # A stop before this line has not closed the socket.
            if self._stopping.is_set():
                return
            with Client(opened, encoding=None, watch=tubes) as client:
                self._settings.hooks.emit(Connected())
                while not self._stopping.is_set():
                    self._reserve(client)
        finally:
            with self._state:
                self._socket = None
            opened.close()

    def _open(self) -> socket.socket:
        address, tls = self._settings.address, self._settings.tls
        if isinstance(address, str):
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            opened = socket.create_connection(address, REPLY_TIMEOUT_S)
        try:
            opened.settimeout(RESERVE_S + REPLY_TIMEOUT_S)
            if isinstance(address, str):
                opened.connect(address)
            else:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if tls is not None:
                    opened = tls.wrap_socket(opened, server_hostname=address[0])
        except BaseException:
            opened.close()
            raise
        return opened

    def _reserve(self, client: Client[bytes]) -> None:
        try:
            job = client.reserve(RESERVE_S)
        except greenstalk.TimedOutError:
            return
        with self._state:
            if self._stopping.is_set():
                return
            self._is_busy = True
        try:
            try:
                stats = client.stats_job(job)
            except greenstalk.NotFoundError:
                return
            self._handle(client, job, stats)
        finally:
            with self._state:
                self._is_busy = False

    def _handle(
        self, client: Client[bytes], job: greenstalk.Job[bytes], stats: greenstalk.StatsJob
    ) -> None:
        handler = self._settings.handlers[stats["tube"]]
        most = handler.retry.max_attempts
        attempt = stats["reserves"] - (most or 0) * stats["kicks"]
        delivery = Delivery(
            job.id, stats["tube"], job.body, stats["pri"], stats["ttr"], max(attempt, 1)
        )
        began_mono = time.monotonic()
        error: BaseException | None
        if most is not None and attempt > most:
            error = TooManyAttemptsError(f"attempt {attempt} of at most {most}")
        else:
            self._settings.hooks.emit(Started(delivery))
            self._held_id = job.id
            with self._keep_alive.holding(delivery, lambda: self._touch(client, job)):
                error = _call(handler.function, delivery)
        decision = _decide(delivery, handler.retry, error)
        failure = self._finish(client, delivery, job, decision)
        seconds = time.monotonic() - began_mono
        if failure is None:
            event = Finished(delivery, decision.outcome, seconds, error, decision.delay)
        else:
            event = Finished(delivery, Outcome.LOST, seconds, error or failure)
        self._settings.hooks.emit(event)
        if failure is not None and not isinstance(failure, greenstalk.NotFoundError):
            raise failure

    def _touch(self, client: Client[bytes], job: greenstalk.Job[bytes]) -> bool:
        # Do not wait for the lock, because other jobs need their touches meanwhile. If it is held,
        # the consumer finishes this job, or has a later one.
        if not self._exchange.acquire(blocking=False):
            return True
        try:
            # After the handler, the connection belongs to the next reserve.
            if self._held_id == job.id:
                client.touch(job)
        except Exception:
            # If the connection is lost, finishing the job fails too, and reports it.
            return False
        finally:
            self._exchange.release()
        return True

    def _finish(
        self,
        client: Client[bytes],
        delivery: Delivery,
        job: greenstalk.Job[bytes],
        decision: _Decision,
    ) -> Exception | None:
        """Delete, release or bury the job; return the exception if that fails."""
        try:
            with self._exchange:
                self._held_id = None
                if decision.outcome is Outcome.DELETED:
                    client.delete(job)
                elif decision.outcome is Outcome.RELEASED:
                    client.release(job, delivery.priority, decision.delay)
                else:
                    client.bury(job, delivery.priority)
        except Exception as error:
            delivery.lost.set()
            return error
        return None


def _call(function: Function, delivery: Delivery) -> BaseException | None:
    try:
        function(delivery)
    except BaseException as error:
        # SystemExit must not end a thread of the worker either.
        return error
    return None
