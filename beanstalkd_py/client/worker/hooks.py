"""Calls of hooks, and the default hook, which logs."""

from __future__ import annotations

import logging

from beanstalkd_py.client.worker.events import (
    Connected,
    Delivery,
    Disconnected,
    Event,
    Finished,
    Hook,
    Outcome,
    ProcessEnded,
    ProcessNotStarted,
    ReleaseJob,
    Started,
)

_LOG = logging.getLogger("beanstalkd_py.worker")


def log_event(event: Event) -> None:
    """Log an event to the logger `beanstalkd_py.worker`; the default hook.

    Records of deliveries have the attributes `job`, `tube`, `attempt`, `outcome` and `seconds`.
    """
    match event:
        case Started(delivery):
            _LOG.debug("%s: started", _title(delivery), extra=_fields(delivery))
        case Finished():
            _log_finished(event)
        case Connected():
            _LOG.info("connected")
        case Disconnected(error, retry_in):
            _LOG.warning("no connection: %s; retrying in %.1f s", error, retry_in)
        case ProcessEnded(pid, status, restart_in):
            text = "process %d ended with status %d; restarting in %.1f s"
            _LOG.error(text, pid, status, restart_in)
        case ProcessNotStarted(error, retry_in):
            _LOG.error("cannot start a process: %s; retrying in %.1f s", error, retry_in)


def _log_finished(event: Finished) -> None:
    if event.outcome is Outcome.BURIED:
        level = logging.ERROR
    elif event.outcome is Outcome.LOST:
        level = logging.WARNING
    elif event.error is None or isinstance(event.error, ReleaseJob):
        level = logging.DEBUG
    else:
        level = logging.WARNING
    delayed = f" with a delay of {event.delay} s" if event.delay else ""
    _LOG.log(
        level,
        "%s: %s%s after %.3f s",
        _title(event.delivery),
        event.outcome,
        delayed,
        event.seconds,
        exc_info=event.error,
        extra=_fields(event.delivery)
        | {"outcome": str(event.outcome), "seconds": round(event.seconds, 6)},
    )


def _title(delivery: Delivery) -> str:
    return f"job {delivery.id} of tube {delivery.tube}, attempt {delivery.attempt}"


def _fields(delivery: Delivery) -> dict[str, object]:
    return {"job": delivery.id, "tube": delivery.tube, "attempt": delivery.attempt}


class Hooks:
    """Calls all hooks; one that fails is logged and does not affect the job."""

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self._hooks = hooks

    def emit(self, event: Event) -> None:
        for hook in self._hooks:
            try:
                hook(event)
            except BaseException:
                # SystemExit must not end a thread of the worker, as in a handler.
                _LOG.exception("hook %r failed", hook)
