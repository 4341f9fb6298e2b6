"""Poll a server in a thread, so that `top` reacts to keys while the server is slow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from beanstalkd_py import errors
from beanstalkd_py.admin.tube_survey import RateTracker, Survey, Surveyor

Opening = Callable[[], AbstractContextManager[Surveyor]]


class Sampler:
    """Takes a survey every `interval_s`. Readers need no lock.

    After `last_error` the sampler retries. `count` is the number of surveys so far.
    """

    def __init__(self, opening: Opening, interval_s: float) -> None:
        self.interval_s = interval_s
        self.newest: Survey | None = None
        self.last_error = ""
        self.count = 0
        self.failure: BaseException | None = None
        """An error of the thread, which the main thread raises."""
        self._opening = opening
        self._tracker = RateTracker()
        self._poll_now = threading.Event()

    def start(self) -> None:
        """Take the first survey, then start the thread.

        Raises NoConnectionError, RefusedError or ControlError.
        """
        with self._opening() as opened:
            self._take(next(opened.surveys(self._tracker)))
        threading.Thread(target=self._run, daemon=True).start()

    def poll_now(self) -> None:
        """Poll at once; required after a change of `interval_s`."""
        self._poll_now.set()

    def _run(self) -> None:
        try:
            while True:
                self._wait()
                try:
                    with self._opening() as opened:
                        for survey in opened.surveys(self._tracker):
                            self._take(survey)
                            self._wait()
                except errors.BeanstalkdError as error:
                    self.last_error = str(error)
        except BaseException as error:
            self.failure = error

    def _take(self, survey: Survey) -> None:
        self.newest = survey
        self.last_error = ""
        self.count += 1

    def _wait(self) -> None:
        self._poll_now.wait(self.interval_s)
        self._poll_now.clear()
