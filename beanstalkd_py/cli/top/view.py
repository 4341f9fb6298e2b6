"""What `top` shows of what there is, and what each key does to that.

Must not know how keys arrive: they are characters, or names such as KEY_UP.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from beanstalkd_py.admin.tube_survey import Survey, TubeRow
from beanstalkd_py.cli.top.table import BY_KEY, COLUMNS, Choice

ESCAPE = "\x1b"
_ENTER = ("\n", "\r", "KEY_ENTER")
_ERASE = ("\x7f", "\b", "KEY_BACKSPACE")
_LEAST_INTERVAL_S = 0.1
_MOST_INTERVAL_S = 3600.0

HELP = """\
t p e d r    sort by tube, puts, reserves, deletes, ready
v y b w o u  sort by reserved, delayed, buried, waiting, oldest, urgent
< >          sort by the column to the left or right (arrows do it, too)
R            turn the order round
/            show tubes that have this in their name; * ? [] make it a glob
Esc          show all tubes again
Up Down PgUp PgDn Home End    scroll
Space        pause, and go on
s            seconds between two looks
Enter        look now
q            quit

put/s, res/s, del/s   jobs of the tube put, reserved and deleted each second
wait                  clients that wait for a job of it
oldest                for how long the job that is next could have been reserved

Rates of reserves and ages need the control socket of a beanstalkd-py
on this machine; of other servers they are not known: -"""


@dataclass
class Prompt:
    """A line that is being typed: after `label`, for `what`."""

    what: str
    label: str
    text: str = ""


@dataclass
class View:
    """What is on the screen. `rows` are those that are chosen; `first` is the topmost shown."""

    choice: Choice
    interval_s: float
    rows: list[TubeRow] = field(default_factory=list)
    first: int = 0
    page: int = 1
    paused: bool = False
    helping: bool = False
    leaving: bool = False
    hurried: bool = False
    message: str = ""
    prompt: Prompt | None = None
    survey: Survey | None = None

    def take(self, survey: Survey) -> None:
        """Shows a newer survey, unless it is paused."""
        if not self.paused:
            self.survey = survey
            self._choose(self.choice)

    def key(self, key: str) -> None:
        """A key was pressed."""
        self.message = ""
        if self.prompt is not None:
            self._typed(self.prompt, key)
        elif self.helping:
            self.helping = False
        elif not self._scrolled(key):
            self._command(key)

    def fit(self, page: int) -> None:
        """So many rows have room."""
        self.page = max(1, page)
        self.first = max(0, min(self.first, len(self.rows) - self.page))

    def _command(self, key: str) -> None:
        match key:
            case "q" | "Q":
                self.leaving = True
            case "?" | "h":
                self.helping = True
            case " ":
                self.paused = not self.paused
            case "R":
                self._choose(replace(self.choice, reverse=not self.choice.reverse))
            case "<" | "KEY_LEFT":
                self._sort_beside(-1)
            case ">" | "KEY_RIGHT":
                self._sort_beside(1)
            case "/" | "f":
                self.prompt = Prompt("pattern", "show tubes with: ", self.choice.pattern)
            case "s":
                self.prompt = Prompt("interval", f"seconds ({self.interval_s:g}): ")
            case _ if key in _ENTER:
                self.hurried = True
            case _ if key == ESCAPE:
                self._choose(replace(self.choice, pattern=""))
            case _ if key in BY_KEY:
                self._choose(replace(self.choice, sort=BY_KEY[key]))
            case _ if key.isprintable() and not key.startswith("KEY_"):
                self.message = f"{key!r} does nothing; ? helps"

    def _scrolled(self, key: str) -> bool:
        steps = {
            "KEY_UP": -1,
            "k": -1,
            "KEY_DOWN": 1,
            "j": 1,
            "KEY_PPAGE": -self.page,
            "KEY_NPAGE": self.page,
            "KEY_HOME": -len(self.rows),
            "KEY_END": len(self.rows),
        }
        if key not in steps:
            return False
        self.first += steps[key]
        self.fit(self.page)
        return True

    def _sort_beside(self, step: int) -> None:
        names = [column.name for column in COLUMNS]
        at = (names.index(self.choice.sort) + step) % len(names)
        self._choose(replace(self.choice, sort=names[at]))

    def _typed(self, prompt: Prompt, key: str) -> None:
        if key == ESCAPE:
            self.prompt = None
        elif key in _ENTER:
            self.prompt = None
            self._entered(prompt)
        elif key in _ERASE:
            prompt.text = prompt.text[:-1]
        elif key == "\x15":  # Ctrl-U
            prompt.text = ""
        elif len(key) == 1 and key.isprintable():
            prompt.text += key

    def _entered(self, prompt: Prompt) -> None:
        if prompt.what == "pattern":
            self.first = 0
            self._choose(replace(self.choice, pattern=prompt.text))
            return
        if not prompt.text:
            return
        try:
            seconds = float(prompt.text)
        except ValueError:
            seconds = 0
        if _LEAST_INTERVAL_S <= seconds <= _MOST_INTERVAL_S:
            self.interval_s = seconds
        else:
            self.message = f"{prompt.text!r}: give seconds, 0.1 to 3600"

    def _choose(self, choice: Choice) -> None:
        self.choice = choice
        self.rows = choice.apply(self.survey.tubes) if self.survey else []
        self.fit(self.page)
