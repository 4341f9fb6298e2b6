"""Conditions on messages, compared with an implementation in plain Python."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py.history.message import Stored
from beanstalkd_py.history.queries.conditions import all_conditions, condition

NAMES = ("pri", "ttr", "TAGS", "KEYS", "UNIQ_KEY", "size", "body", "tag", "odd.name")
TEXTS = st.sampled_from(
    [
        "0",
        "7",
        "10",
        "1024",
        "-3",
        "0.5",
        "7.0",
        "deleted",
        "a b",
        "ab",
        "",
        "1e3",
        "7 ",
        "٣",
        "a=b",
    ]
)
SIGNS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~")
PATTERNS = st.sampled_from(["a", "^1", "b$", ".", "(?i)DEL", "[0-9]+", "a|7", ""])


def message(properties: dict[str, str], body: bytes = b"") -> Stored:
    properties = {name: value for name, value in properties.items() if value}
    return Stored(
        topic="t",
        body=body,
        properties=properties,
        offset=0,
        size=0,
        queue_offset=0,
        body_crc=0,
        version=1,
    )


def number(text: str) -> Fraction | None:
    return Fraction(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else None


def compare(text: str, sign: str, value: str) -> bool:
    """Compare a text with a value, for the signs without negation."""
    if sign == "=":
        return text == value
    if sign == "~":
        return bool(re.search(value, text))
    mine, bound = number(text), number(value)
    if mine is None or bound is None:
        return False
    return {"<": mine < bound, "<=": mine <= bound, ">": mine > bound, ">=": mine >= bound}[sign]


def expected_match(found: Stored, name: str, sign: str, value: str) -> bool:
    """Implement the documentation literally."""
    if sign.startswith("!"):
        return not expected_match(found, name, {"!=": "=", "!~": "~"}[sign], value)
    if name == "body":
        wanted = value.encode()
        return found.body == wanted if sign == "=" else bool(re.search(wanted, found.body))
    if name == "size":
        return compare(str(len(found.body)), sign, value)
    if name == "key":
        keys = found.properties.get("KEYS", "").split(" ")
        texts = [*keys, found.properties.get("UNIQ_KEY", "")]
        return any(compare(text, sign, value) for text in texts if text)
    wanted_name = {"tag": "TAGS"}.get(name, name.removeprefix("properties."))
    text = found.properties.get(wanted_name)
    return text is not None and compare(text, sign, value)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, str]:
    sign = draw(st.sampled_from(SIGNS))
    names = [*NAMES, "key", *(f"properties.{name}" for name in NAMES), "nowhere"]
    if "<" in sign or ">" in sign:
        names.remove("body")
        return draw(st.sampled_from(names)), sign, draw(st.sampled_from(["0", "7", "-1", "10.5"]))
    return draw(st.sampled_from(names)), sign, draw(PATTERNS if "~" in sign else TEXTS)


@given(
    st.dictionaries(st.sampled_from(NAMES), TEXTS),
    st.sampled_from([b"", b"a", b"7", b"\xff\n7", b"0123456789"]),
    st.lists(conditions(), max_size=3),
)
def test_all_conditions_hold_as_they_are_documented(properties, body, wanted):
    found = message(properties, body)
    texts = ["".join(each) for each in wanted]
    assert all_conditions(texts)(found) == all(expected_match(found, *each) for each in wanted)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is no condition"),
        ("pri", "is no condition"),
        ("=3", "is no condition"),
        ("a pri=3", "is no condition"),
        ("pri>", "'' is no number"),
        ("pri<1e3", "'1e3' is no number"),
        ("pri>=ten", "'ten' is no number; after >= give one"),
        ("body>3", "a body has no order"),
        ("body~(", "no regular expression"),
        ("tag~[", "no regular expression"),
        ("tag~a{99999999999}", "no regular expression"),
    ],
)
def test_a_wrong_condition_is_reported(text, what):
    with pytest.raises(ValueError, match=re.escape(what)):
        condition(text)
