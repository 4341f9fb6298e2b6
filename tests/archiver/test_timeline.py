"""Format a timeline for people: every event, its time, and the time since the previous event."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.cli.history.message_format import timeline_lines

SECOND = 10**9
KINDS = st.sampled_from(["put", "reserve", "touch", "release", "timeout", "bury", "kick", "delete"])
TIME = st.one_of(st.just("?"), st.integers(0, 4 * 10**18).map(str))


def test_all_events_of_a_timeline() -> None:
    begun = 1_700_000_000 * SECOND
    timeline = (
        f"put@{begun},pri=0,delay=5;due@{begun + 5 * SECOND};...7;bury@?,pri=3;delete@{begun}"
    )
    assert timeline_lines(timeline) == [
        "2023-11-14T22:13:20.000000Z                put pri=0 delay=5",
        "2023-11-14T22:13:25.000000Z     +5.000000  due",
        "                                           (7 events omitted)",
        "?                                          bury pri=3",
        "2023-11-14T22:13:20.000000Z                delete",
    ]


@given(st.lists(st.tuples(KINDS, TIME), min_size=1))
def test_every_event_has_a_line(events: list[tuple[str, str]]) -> None:
    lines = timeline_lines(";".join(f"{kind}@{at}" for kind, at in events))
    assert lines is not None and len(lines) == len(events)
    for line, (kind, at) in zip(lines, events, strict=True):
        assert line.split()[-1] == kind
        if at != "?":
            shown = datetime.datetime.fromisoformat(line.split()[0])
            whole = (shown - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // (
                datetime.timedelta(microseconds=1)
            )
            assert whole == int(at) // 1000


@given(st.text())
def test_timeline_lines_of_other_texts_are_none(text: str) -> None:
    lines = timeline_lines(text)
    assert lines is None or "@" in text or text.startswith("...")
