"""State of the screen of `top`, and the effect of each key.

Keys are characters, or names of curses such as KEY_UP.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from beanstalkd_py.admin.tube_survey import Survey, TubeRow
from beanstalkd_py.cli.top.table import BY_KEY, COLUMNS, Selection

ESCAPE = "\x1b"
_ENTER = ("\n", "\r", "KEY_ENTER")
_ERASE = ("\x7f", "\b", "KEY_BACKSPACE")
_MIN_INTERVAL_S = 0.1
_MAX_INTERVAL_S = 3600.0

HELP = """\
t p e d r    sort by tube, puts, reserves, deletes, ready
v y b w o u  sort by reserved, delayed, buried, waiting, oldest, urgent
< >          sort by the column to the left or right (also arrow keys)
R            reverse the order
/            filter by a part of the name, or a glob with * ? []
Esc          remove the filter
Up Down PgUp PgDn Home End    scroll
Space        pause or continue
s            set the interval in seconds
Enter        refresh now
q            quit

put/s, res/s, del/s   jobs put, reserved and deleted per second
wait                  clients that wait for a job
oldest                time for which the next job has been ready

res/s and oldest require the control socket of a beanstalkd-py on this
machine; for other servers they are -"""


@dataclass
class Prompt:
    """A line of input after `label`, for the setting `target`."""

    target: str
    label: str
    text: str = ""


@dataclass
class View:
    """`rows` are the selected tubes; `first` is the topmost row on the screen."""

    selection: Selection
    interval_s: float
    rows: list[TubeRow] = field(default_factory=list)
    first: int = 0
    page: int = 1
    paused: bool = False
    help_shown: bool = False
    quitting: bool = False
    poll_now: bool = False
    message: str = ""
    prompt: Prompt | None = None
    survey: Survey | None = None

    def show(self, survey: Survey) -> None:
        if not self.paused:
            self.survey = survey
            self._select(self.selection)

    def key(self, key: str) -> None:
        self.message = ""
        if self.prompt is not None:
            self._type(self.prompt, key)
        elif self.help_shown:
            self.help_shown = False
        elif not self._scroll(key):
            self._command(key)

    def fit(self, page: int) -> None:
        self.page = max(1, page)
        self.first = max(0, min(self.first, len(self.rows) - self.page))

    def _command(self, key: str) -> None:
        match key:
            case "q" | "Q":
                self.quitting = True
            case "?" | "h":
                self.help_shown = True
            case " ":
                self.paused = not self.paused
            case "R":
                self._select(replace(self.selection, reverse=not self.selection.reverse))
            case "<" | "KEY_LEFT":
                self._sort_beside(-1)
            case ">" | "KEY_RIGHT":
                self._sort_beside(1)
            case "/" | "f":
                self.prompt = Prompt("pattern", "filter: ", self.selection.pattern)
            case "s":
                self.prompt = Prompt("interval", f"interval in seconds ({self.interval_s:g}): ")
            case _ if key in _ENTER:
                self.poll_now = True
            case _ if key == ESCAPE:
                self._select(replace(self.selection, pattern=""))
            case _ if key in BY_KEY:
                self._select(replace(self.selection, sort=BY_KEY[key]))
            case _ if key.isprintable() and not key.startswith("KEY_"):
                self.message = f"unknown key {key!r}; press ? for help"

    def _scroll(self, key: str) -> bool:
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
        at = (names.index(self.selection.sort) + step) % len(names)
        self._select(replace(self.selection, sort=names[at]))

    def _type(self, prompt: Prompt, key: str) -> None:
        if key == ESCAPE:
            self.prompt = None
        elif key in _ENTER:
            self.prompt = None
            self._submit(prompt)
        elif key in _ERASE:
            prompt.text = prompt.text[:-1]
        elif key == "\x15":  # Ctrl-U
            prompt.text = ""
        elif len(key) == 1 and key.isprintable():
            prompt.text += key

    def _submit(self, prompt: Prompt) -> None:
        if prompt.target == "pattern":
            self.first = 0
            self._select(replace(self.selection, pattern=prompt.text))
            return
        if not prompt.text:
            return
        try:
            seconds = float(prompt.text)
        except ValueError:
            seconds = 0
        if _MIN_INTERVAL_S <= seconds <= _MAX_INTERVAL_S:
            self.interval_s = seconds
        else:
            self.message = f"invalid interval {prompt.text!r}; use 0.1 to 3600 seconds"

    def _select(self, selection: Selection) -> None:
        self.selection = selection
        self.rows = selection.apply(self.survey.tubes) if self.survey else []
        self.fit(self.page)
