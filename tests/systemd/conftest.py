"""A booted machine with the units and the program, for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from systemd.machine import Machine, booted


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine")) as running:
        yield running
