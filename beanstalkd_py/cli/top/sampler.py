"""Poll a server in a thread, so that `top` reacts to keys while the server is slow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from beanstalkd_py import errors
from beanstalkd_py.admin.tube_survey import RateTracker, Survey, Surveyor

Opening = Callable[[], AbstractContextManager[Surveyor]]


class Sampler:
    """Takes a survey every `interval_s`. Readers need no lock.

    `trouble` is the last error; the sampler retries. `count` is the number of surveys so far.
    """

    def __init__(self, opening: Opening, interval_s: float) -> None:
        self.interval_s = interval_s
        self.newest: Survey | None = None
        self.trouble = ""
        self.count = 0
        self.failure: BaseException | None = None
        self._opening = opening
        self._tracker = RateTracker()
        self._poll_now = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable after a survey, an error, or `wake`."""
        return self._wake_read

    def start(self) -> None:
        """Take the first survey, then start the thread.

        Raises NoConnectionError, RefusedError or ControlError.
        """
        with self._opening() as opened:
            self._take(next(opened.surveys(self._tracker)))
        self._thread.start()

    def hurry(self) -> None:
        """Poll at once; required after a change of `interval_s`."""
        self._poll_now.set()

    def clear(self) -> None:
        """Make the descriptor unreadable."""
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return

    def wake(self) -> None:
        """Make the descriptor readable. Safe in signal handlers."""
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            return  # the pipe is full, so it is readable

    def _run(self) -> None:
        try:
            self._wait()
            while True:
                try:
                    self._poll_until_error()
                except errors.BeanstalkdError as error:
                    self.trouble = str(error)
                    self.wake()
                    self._wait()
        except BaseException as error:
            # The main thread raises it.
            self.failure = error
            self.wake()

    def _poll_until_error(self) -> None:
        with self._opening() as opened:
            for survey in opened.surveys(self._tracker):
                self._take(survey)
                self._wait()

    def _take(self, survey: Survey) -> None:
        self.newest = survey
        self.trouble = ""
        self.count += 1
        self.wake()

    def _wait(self) -> None:
        self._poll_now.wait(self.interval_s)
        self._poll_now.clear()
