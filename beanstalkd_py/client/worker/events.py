"""Deliveries of jobs, and the events that a worker passes to its hooks."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job in the hands of a handler; `ttr` is in seconds.

    `attempt` counts the reserves of the job since its last kick, from 1 on. `lost` is set as soon
    as the worker notices that the server may give the job to another client.
    """

    id: int
    tube: str
    body: bytes
    priority: int
    ttr: int
    attempt: int
    lost: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


class ReleaseJob(Exception):
    """Raised by a handler to run its job again after `delay` seconds; not an error."""

    def __init__(self, delay: int = 0) -> None:
        super().__init__(f"release with a delay of {delay} s")
        self.delay = delay


class BuryJob(Exception):
    """Raised by a handler to bury its job at once; the message is the reason."""


class TooManyAttemptsError(Exception):
    """A job has used all its attempts and is buried without another one.

    Its last attempt ended because the process, the connection or the TTR ended.
    """


class Outcome(enum.StrEnum):
    """The end of a delivery.

    LOST: another client has the job, or the connection is lost. The server then delivers the job
    again, unless the worker had deleted it.
    """

    DELETED = "deleted"
    RELEASED = "released"
    BURIED = "buried"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Started:
    """A handler is about to run."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Finished:
    """A delivery ended after `seconds`; `error` is the handler's exception, or that of the loss.

    `delay` is in seconds, for RELEASED.
    """

    delivery: Delivery
    outcome: Outcome
    seconds: float
    error: BaseException | None = None
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Connected:
    """A thread has connected and watches its tubes."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A thread cannot connect or lost its connection; it connects in `retry_in` seconds."""

    error: Exception
    retry_in: float


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """A process of the worker ended unexpectedly; another starts in `restart_in` seconds.

    `status` is its exit status, negative for a signal.
    """

    pid: int
    status: int
    restart_in: float


@dataclass(frozen=True, slots=True)
class ProcessNotStarted:
    """The system cannot fork a process of the worker, which retries in `retry_in` seconds."""

    error: OSError
    retry_in: float


Event = Started | Finished | Connected | Disconnected | ProcessEnded | ProcessNotStarted
Hook = Callable[[Event], None]
"""Called in the thread, and the process, in which the event occurs."""
