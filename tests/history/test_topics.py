"""Tubes as topics: names are valid as RocketMQ's folders, and can be converted back."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.history.topics import escape, unescape

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=90) | st.from_regex(
    r"[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199}", fullmatch=True
)


@given(NAMES)
def test_every_tube_name_converts_to_a_topic_and_back(name):
    topic = escape(name)
    assert re.fullmatch(r"[%|a-zA-Z0-9_-]{1,255}", topic)
    if topic.startswith("%H"):
        assert len(topic) == 66
        assert unescape(topic) is None
    else:
        assert unescape(topic) == name


@given(st.text(max_size=30))
def test_only_topics_of_tubes_convert_to_tubes(topic):
    tube = unescape(topic)
    assert tube is None or escape(tube) == topic


@pytest.mark.parametrize(
    ("tube", "topic"),
    [
        ("mails", "mails"),
        ("a/b.c", "a%2Fb%2Ec"),
        ("100%", "100%25"),
        ("-x_", "-x_"),
        ("/" * 85, "%2F" * 85),
        ("/" * 86, "%H" + hashlib.sha256(b"/" * 86).hexdigest()),
    ],
)
def test_names_as_they_are_on_disk(tube, topic):
    assert escape(tube) == topic


@pytest.mark.parametrize("topic", ["%RETRY%group", "%2f", "%41", "%", "a|b", ""])
def test_other_topics_have_no_tube(topic):
    assert unescape(topic) is None
