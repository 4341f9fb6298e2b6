"""Surveys of a server in a thread of their own, so that `top` obeys keys while a server is slow."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from beanstalkd_py import errors
from beanstalkd_py.admin.address import Address
from beanstalkd_py.admin.tls_options import Trust
from beanstalkd_py.admin.tube_survey import Before, Survey, surveyor


class Sampler:
    """Surveys every `interval_s`. What it has found can be read at any time, without a lock.

    `trouble` is why there is nothing newer: it goes on trying. `count` surveys are made so far.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        control: Path | None,
        interval_s: float,
        trust: Trust | None = None,
    ) -> None:
        self.interval_s = interval_s
        self.newest: Survey | None = None
        self.trouble = ""
        self.count = 0
        self.failure: BaseException | None = None
        self._place = address, timeout_s, control, trust
        self._before = Before()
        self._again = threading.Event()
        self._told, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def fileno(self) -> int:
        """Readable when there is something new."""
        return self._told

    def start(self) -> None:
        """Makes the first survey here, then the others in the thread.

        Raises NoConnectionError, RefusedError or ControlError.
        """
        with surveyor(*self._place) as opened:
            self._take(next(opened.surveys(self._before)))
        self._thread.start()

    def hurry(self) -> None:
        """The next one at once; also to be called when `interval_s` has changed."""
        self._again.set()

    def heard(self) -> None:
        """What was new has been looked at."""
        try:
            while os.read(self._told, 4096):
                pass
        except BlockingIOError:
            return

    def wake(self) -> None:
        """Makes the descriptor readable. For signal handlers, too."""
        try:
            os.write(self._tell, b"x")
        except BlockingIOError:
            return  # it is readable

    def _run(self) -> None:
        try:
            self._wait()
            while True:
                try:
                    self._look_again_and_again()
                except errors.BeanstalkdError as error:
                    self.trouble = str(error)
                    self.wake()
                    self._wait()
        except BaseException as error:
            # For the main thread to raise: nobody would see it here.
            self.failure = error
            self.wake()

    def _look_again_and_again(self) -> None:
        with surveyor(*self._place) as opened:
            for survey in opened.surveys(self._before):
                self._take(survey)
                self._wait()

    def _take(self, survey: Survey) -> None:
        self.newest = survey
        self.trouble = ""
        self.count += 1
        self.wake()

    def _wait(self) -> None:
        self._again.wait(self.interval_s)
        self._again.clear()
