"""Reset fault injection after every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core import fault_injection


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    fault_injection.heal()
    yield
    fault_injection.heal()
