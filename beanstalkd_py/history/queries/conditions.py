"""Filter messages by conditions such as `pri<1024`, all of which must hold.

A condition is NAME, an operator and a value, without spaces around the operator:

    =  !=          text comparison
    <  <=  >  >=   numeric comparison; both sides must be numbers
    ~  !~          search for a Python regular expression

NAME is a property, or one of

    tag         the property TAGS
    key         a word of KEYS, or UNIQ_KEY; true if any word matches (for != and !~: if none does)
    body        the body; only with = != ~ !~
    size        length of the body in bytes

`properties.NAME` is always a property. For a missing property only != and !~ hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from beanstalkd_py.history.message import TAGS, Stored

MessageFilter = Callable[[Stored], bool]

PROPERTY = "properties."

_CONDITION = re.compile(r"([^\s=!<>~]+)(!=|!~|<=|>=|=|<|>|~)(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_ORDERS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def all_conditions(conditions: Iterable[str]) -> MessageFilter:
    """Return a filter for all conditions. ValueError names the invalid condition."""
    filters = [condition(text) for text in conditions]
    return lambda message: all(holds(message) for holds in filters)


def properties_of(conditions: Iterable[str]) -> list[str]:
    """Return the properties that valid conditions use, without tag, key, body and size."""
    matches = (_CONDITION.fullmatch(text) for text in conditions)
    names = [match[1] for match in matches if match is not None]
    of_messages = {"tag", "key", "body", "size"}
    return list(dict.fromkeys(n.removeprefix(PROPERTY) for n in names if n not in of_messages))


def condition(text: str) -> MessageFilter:
    """Return a filter for one condition. Raises ValueError."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no condition; give one such as tag=deleted, pri<1024, timeouts!=0,"
            " body~word"
        )
    name, sign, value = match.groups()
    if name == "body":
        if sign in _ORDERS:
            raise ValueError(f"{text!r}: a body has no order; give =, !=, ~ or !~, or size{sign}N")
        value = value.encode("utf-8", "surrogateescape")
    values = _values_of(name)
    holds = _test(text, sign.removeprefix("!"), value)
    is_negated = sign.startswith("!")
    return lambda message: any(holds(each) for each in values(message)) != is_negated


def _values_of(name: str) -> Callable[[Stored], Iterable[Any]]:
    """Return a function that gets the values of a name from a message: the body's is bytes."""
    if name == "body":
        return lambda message: (message.body,)
    if name == "key":
        return lambda message: message.keys
    if name == "size":
        return lambda message: (str(len(message.body)),)
    wanted = TAGS if name == "tag" else name.removeprefix(PROPERTY)

    def values(message: Stored) -> Iterable[str]:
        value = message.properties.get(wanted)
        return () if value is None else (value,)

    return values


def _test(text: str, sign: str, value: Any) -> Callable[[Any], bool]:
    """Return the test of one value; `value` is bytes for a body, else text."""
    if sign == "=":
        return lambda each: bool(each == value)
    if sign == "~":
        try:
            pattern = re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r}: this is no regular expression: {error}") from error
        return lambda each: pattern.search(each) is not None
    if not _NUMBER.fullmatch(value):
        raise ValueError(
            f"{text!r}: {value!r} is no number; after {sign} give one such as 10 or 0.5"
        )
    bound, compare = Decimal(value), _ORDERS[sign]
    return lambda each: _NUMBER.fullmatch(each) is not None and compare(Decimal(each), bound)
