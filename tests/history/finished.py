"""Stores of finished jobs for tests, as the archiver makes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from history.stores import BY_HAND, SMALL

from beanstalkd_py.history.store import Message, Store
from beanstalkd_py.history.topics import escape

FIRST_MS = 1_763_700_000_000  # 2025-11-21T04:40:00Z


def finished(number: int, tube: str = "mails", seed: int = 0, **changes: object) -> Message:
    """Make the message of job `number`; job n is stored n seconds after job 0."""
    dice = random.Random(f"{seed} {number}")
    properties = {
        "TUBE": tube,
        "KEYS": str(number),
        "TAGS": dice.choice(["deleted", "deleted", "truncated"]),
        "UNIQ_KEY": f"0-1-{number}",
        "pri": str(dice.choice([0, 10, 1024, 4294967295])),
        "delay": str(dice.choice([0, 0, 3600])),
        "ttr": str(dice.choice([1, 60, 4294967295])),
        **{name: str(dice.randrange(3)) for name in ("reserves", "timeouts", "releases")},
        "buries": "0",
        "kicks": "0",
        "timeline": f"put@{FIRST_MS}000000,pri=0;delete@?",
    }
    settings: dict[str, object] = {
        "topic": escape(tube),
        "body": b"%d:" % number + dice.randbytes(dice.choice([0, 5, 80])),
        "properties": properties,
        "born_timestamp": FIRST_MS - 500,
        "store_timestamp": FIRST_MS + 1000 * number,
    }
    return Message(**{**settings, **changes})  # type: ignore[arg-type]


def number_of(body: bytes) -> int:
    """Return the number of the job with this body."""
    return int(body.partition(b":")[0])


def make_store(folder: Path, messages: Sequence[Message], segment_bytes: int = 4096) -> Path:
    """Make a closed store with the messages."""
    sizes = replace(SMALL, segment_bytes=segment_bytes)
    with Store.open(folder, replace(BY_HAND, sizes=sizes)) as store:
        store.append(messages)
        store.dispatch()
    return folder


def without_body(message: Message, size: int = 70_000) -> Message:
    """Return the message as the archiver stores it if the body is too large."""
    properties = {**message.properties, "body-bytes": str(size)}
    return replace(message, properties=properties, body=b"")
