"""Bodies of jobs: a few kinds of JSON, with log-normal sizes from 10 bytes to the largest job."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

SMALLEST = 10
MEDIAN = 200
SIGMA = 1.2
LARGEST_ONE_IN = 20_000
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "
TEXT_BYTES = 1 << 16


@dataclass(frozen=True)
class Kind:
    """A kind of body; `form` has placeholders for numbers. Consumers bury every `poison` job."""

    name: str
    share: float
    form: str
    poison: bool = False


KINDS = (
    Kind("mail", 0.40, '"to":"user{0}@example.org","template":{1}'),
    Kind("thumbnail", 0.20, '"image":{0},"width":{1}'),
    Kind("webhook", 0.20, '"url":"https://hooks.example.org/{0}","attempt":{1}'),
    Kind("invoice", 0.12, '"customer":{0},"month":{1}'),
    Kind("report", 0.06, '"account":{0},"pages":{1}'),
    Kind("legacy-import", 0.02, '"row":{0},"column":{1}', poison=True),
)
PING = Kind("ping", 0.0, "")
"""The kind of bodies that are too small for JSON."""
POISON = frozenset(kind.name for kind in KINDS if kind.poison)


class Bodies:
    def __init__(self, rng: random.Random, largest: int) -> None:
        self._rng = rng
        self._largest = largest
        text = "".join(rng.choices(LETTERS, k=TEXT_BYTES))
        self._text = text * (largest // TEXT_BYTES + 2)
        self._mean = math.log(MEDIAN)
        self._shares = [kind.share for kind in KINDS]

    def make(self) -> tuple[str, bytes]:
        rng = self._rng
        size = int(rng.lognormvariate(self._mean, SIGMA))
        if rng.random() * LARGEST_ONE_IN < 1:
            size = self._largest
        size = max(SMALLEST, min(size, self._largest))
        number = rng.randrange(1_000_000)
        kind = rng.choices(KINDS, self._shares)[0]
        fields = kind.form.format(number, number % 12 + 1)
        head = f'{{"type":"{kind.name}",{fields}'
        left = size - len(head) - len(',"data":""}')
        if left >= 0:
            start = rng.randrange(TEXT_BYTES)
            return kind.name, f'{head},"data":"{self._text[start : start + left]}"}}'.encode()
        if kind.poison or size >= len(head) + 1:
            whole = f"{head}}}".encode()
            if len(whole) <= self._largest:
                return kind.name, whole
        return PING.name, f"ping {number:06d}".ljust(size, ".")[: max(size, SMALLEST)].encode()
