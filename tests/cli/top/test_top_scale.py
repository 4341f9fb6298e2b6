"""`top` with ten thousand tubes: time of a refresh, and CPU use of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from cli.top.screens import screen
from processes import slowness
from servers import Server, ours

from beanstalkd_py.admin.address import parse_address
from beanstalkd_py.admin.tube_survey import RateTracker, open_surveyor
from beanstalkd_py.cli.top.table import Selection, columns_for

TUBES = 10_000
REFRESH_S = 0.2
SHARE_OF_A_CORE = 0.01
SECONDS = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=[1, 2])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ours(f"--workers={request.param}") as running:
        with running.connect(30) as client:
            for first in range(0, TUBES, 100):
                for number in range(first, first + 100):
                    client.send(b"use some-tube.%d\r\nput 0 0 60 1\r\nx\r\n" % number)
                client.replies(200)
        yield running


def test_a_refresh_takes_less_than_200_ms(server: Server) -> None:
    took = []
    with open_surveyor(parse_address(f"127.0.0.1:{server.port}"), 10, None) as opened:
        surveys = opened.surveys(RateTracker())
        assert next(surveys).workers is not None  # polled through the control socket
        for _ in range(10):
            start = time.perf_counter()
            rows = Selection(sort="puts", pattern="some-*").apply(next(surveys).tubes)
            columns = columns_for(200)
            shown = [[column.cell(row) for column in columns] for row in rows[:60]]
            # Compared at once, because what else runs on this machine changes.
            took.append((time.perf_counter() - start) / slowness())
            assert (len(rows), len(shown)) == (TUBES, 60)
    print(f"median {sorted(took)[5] * 1000:.0f} ms, worst {max(took) * 1000:.0f} ms")
    assert sorted(took)[5] < REFRESH_S


def test_server_uses_less_than_one_percent_cpu(server: Server) -> None:
    def cost(seconds: float) -> float:
        before = server.cpu_s()
        time.sleep(seconds)
        return (server.cpu_s() - before) / seconds

    with screen("top", "--addr", f"127.0.0.1:{server.port}", columns=120, lines=50) as shown:
        shown.wait_for(f"of {TUBES + 1}")
        share = cost(SECONDS)
    print(f"{share:.2%} of a core")
    assert share < SHARE_OF_A_CORE * slowness()
