"""The rules for writes that a failed sync has lost."""

from __future__ import annotations

import random

import pytest
from crash.disk_images import Change, File


@pytest.mark.parametrize(
    ("later", "rest"),
    [
        (Change(512, b"new" * 100), {0: b"a", 511: b"a", 812: b"a"}),
        (Change(512, None), {0: b"a"}),
        (Change(0, b"b" * 1024), {}),
    ],
    ids=["write", "truncation", "whole"],
)
def test_a_later_durable_change_replaces_a_lost_one(later: Change, rest: dict[int, bytes]) -> None:
    file = File()
    size, lost = Change(4096, None), Change(0, b"a" * 1024)
    for change in (size, lost):
        file.pending.append(change)
    file.failed([size, lost])
    file.pending.append(later)
    file.synced([later])
    durable = file.durable.whole()
    seen: dict[int, set[bytes]] = {at: set() for at in rest}
    for seed in range(100):
        image = file.image(random.Random(seed)).whole()
        if later.data is not None:
            assert image[later.offset :][: len(later.data)] == later.data
        else:
            assert len(image) <= later.offset
        assert len(image) <= 1024
        for at in rest:
            seen[at].add(image[at : at + 1])
    for at, lost_byte in rest.items():
        assert seen[at] == {lost_byte, durable[at : at + 1]}
