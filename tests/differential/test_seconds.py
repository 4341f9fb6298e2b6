"""Timers compared with those of C beanstalkd: a table of small scenes.

All scenes run at the same time, each in tubes of its own, so that together they take as long as
the longest. No TTR runs out, because C beanstalkd sometimes misses one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from servers import Server, ours, reference
from side_by_side import normalised
from wire import FENCE, FENCE_REPLY, Client, in_tube

pytestmark = pytest.mark.differential

# (connection, its input, the number of replies to wait for); without a connection: seconds to wait.
# `{tube}` is the tube that all connections use and watch, `{1}` the first job put in the scene.
Scene = list[tuple[str, str, int]]
# (time, reply); the time is that of the read.
Story = list[tuple[float, bytes]]

SLACK_S = 0.6

SCENES: dict[str, Scene] = {
    "delays run out in the order of deadlines": [
        ("A", "put 0 2 100 0\r\n\r\nput 9 1 100 0\r\n", 2),
        ("B", "reserve-with-timeout 5\r\nreserve-with-timeout 5", 2),
        ("A", "stats-job {1}", 1),
    ],
    "deadline soon, then release": [
        ("A", "put 0 0 2 0\r\n\r\nreserve", 2),
        ("A", "reserve\r\nreserve-with-timeout 0\r\nrelease {1} 0 0\r\nreserve", 4),
    ],
    "deadline soon again and again": [
        ("A", "put 0 0 2 0\r\n\r\nreserve", 2),
        ("A", "reserve\r\nreserve-with-timeout 4\r\nreserve-with-timeout 0\r\nreserve", 4),
        ("A", "delete {1}", 1),
    ],
    "deadline soon where the ready job is paused": [
        ("A", "put 0 0 1 0\r\n\r\nput 0 0 1 0\r\n\r\nreserve\r\npause-tube {tube} 100", 4),
        ("A", "reserve-with-timeout 0\r\nreserve-with-timeout 3\r\nreserve", 3),
    ],
    "what comes first, a timeout or the last second": [
        ("A", "put 0 0 3 0\r\n\r\nreserve", 2),
        ("A", "reserve-with-timeout 1\r\nreserve-with-timeout 3", 2),
    ],
    "the job of another does not warn": [
        ("A", "put 0 0 1 0\r\n\r\nreserve", 2),
        ("B", "reserve-with-timeout 0", 1),
        ("A", "delete {1}", 1),
        ("B", "reserve-with-timeout 1", 1),
    ],
    "timeouts end in the order of their length": [
        ("A", "reserve-with-timeout 2", 0),
        ("B", "reserve-with-timeout 1", 1),
        ("C", "stats-tube {tube}", 1),
        ("A", "", 1),
        ("C", "stats-tube {tube}", 1),
    ],
    "a release with delay comes back": [
        ("A", "put 0 0 100 0\r\n\r\nreserve", 2),
        ("A", "release {1} 3 1", 1),
        ("A", "reserve-with-timeout 0\r\nreserve-with-timeout 3\r\nstats-job {1}", 3),
    ],
    "a delay that was kicked away is over": [
        ("A", "put 0 1 100 0\r\n\r\nkick 1\r\nreserve", 3),
        ("A", "bury {1} 0", 1),
        ("", "1.3", 0),
        ("A", "peek-ready\r\npeek-delayed\r\npeek-buried\r\nstats-job {1}", 4),
    ],
    "burying ends the ttr": [
        ("A", "put 0 0 1 0\r\n\r\nreserve", 2),
        ("A", "bury {1} 0", 1),
        ("A", "reserve-with-timeout 2\r\nstats-job {1}", 2),
    ],
    "touch starts the ttr again": [
        ("A", "put 0 0 2 0\r\n\r\nreserve", 2),
        ("", "1.5", 0),
        ("A", "touch {1}", 1),
        ("A", "stats-job {1}", 1),
        ("A", "reserve-with-timeout 5", 1),
    ],
    "a pause ends while one waits": [
        ("A", "put 0 0 100 0\r\n\r\npause-tube {tube} 1", 2),
        ("A", "reserve-with-timeout 0\r\nreserve-with-timeout 3\r\nstats-tube {tube}", 3),
    ],
    "a pause ends without a waiter": [
        ("A", "put 0 0 100 0\r\n\r\npause-tube {tube} 1", 2),
        ("", "1.3", 0),
        ("A", "reserve-with-timeout 0\r\nstats-tube {tube}", 2),
    ],
    "a second pause replaces the first": [
        ("A", "put 0 0 100 0\r\n\r\npause-tube {tube} 100\r\npause-tube {tube} 1", 3),
        ("A", "reserve-with-timeout 3", 1),
    ],
    "a paused tube does not hold up another": [
        ("A", "put 0 0 100 0\r\n\r\npause-tube {tube} 1\r\nwatch {tube}.b\r\nuse {tube}.b", 4),
        ("A", "put 9 0 100 0\r\n\r\nreserve\r\nreserve-with-timeout 3", 3),
    ],
    "a delay runs out in a paused tube": [
        ("A", "put 0 1 100 0\r\n\r\npause-tube {tube} 2\r\nreserve-with-timeout 4", 3),
    ],
    "deleted before it was due": [
        ("A", "put 0 1 100 0\r\n", 1),
        ("A", "delete {1}\r\nreserve-with-timeout 2", 2),
    ],
    "three clients wait and are served in their order": [
        ("A", "reserve", 0),
        ("", "0.1", 0),
        ("B", "reserve", 0),
        ("", "0.1", 0),
        ("C", "reserve", 0),
        ("", "0.1", 0),
        ("D", "put 0 1 100 0\r\n\r\nput 0 1 100 0\r\n\r\nput 0 2 100 0\r\n", 3),
        ("A", "", 1),
        ("B", "", 1),
        ("C", "", 1),
    ],
}


class Stage:
    """One scene on one server."""

    def __init__(self, server: Server, tube: str) -> None:
        self._server = server
        self._names = {"tube": tube}
        self._clients: dict[str, Client] = {}
        self._start = time.monotonic()

    def play(self, scene: Scene) -> Story:
        """Return every reply and its time."""
        story: Story = []
        with ExitStack() as stack:
            for name, text, replies in scene:
                if not name:
                    time.sleep(float(text))
                    continue
                client = self._clients.get(name) or stack.enter_context(self._connect(name))
                if text:
                    client.send(self._fill(text) + b"\r\n")
                for _ in range(replies):
                    reply = self._without_ids(client.reply())
                    story.append((time.monotonic() - self._start, reply))
        return story

    def _connect(self, name: str) -> Client:
        client = self._server.connect(timeout_s=10)
        # It names no tube, so that any worker may get the connection.
        assert client.ask(FENCE) == FENCE_REPLY
        self._clients[name] = in_tube(client, self._names["tube"].encode())
        return client

    def _fill(self, text: str) -> bytes:
        return re.sub(r"\{(\w+)\}", lambda found: self._names[found[1]], text).encode()

    def _without_ids(self, reply: bytes) -> bytes:
        """Scenes share the server, so a job is identified by its number in its scene."""
        inserted = re.fullmatch(rb"INSERTED (\d+)\r\n", reply)
        if inserted:
            self._names[str(len(self._names))] = inserted[1].decode()
        plain = normalised(reply)
        for number, job in self._names.items():
            if number != "tube":
                pattern = rb"(?m)^(INSERTED |RESERVED |FOUND |id: )%b\b" % job.encode()
                plain = re.sub(pattern, rb"\1job %b" % number.encode(), plain)
        return plain


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda workers: f"workers-{workers}")
def stories(
    request: pytest.FixtureRequest,
) -> Iterator[dict[str, tuple[Future[Story], Future[Story]]]]:
    """Every scene on both servers, all at once; ours has one worker or several."""
    several = ("--workers", str(request.param)) if request.param > 1 else ()
    with (
        ours(*several) as our_server,
        reference() as reference_server,
        ThreadPoolExecutor(max_workers=2 * len(SCENES)) as pool,
    ):
        yield {
            name: (
                pool.submit(Stage(our_server, f"scene{number}").play, scene),
                pool.submit(Stage(reference_server, f"scene{number}").play, scene),
            )
            for number, (name, scene) in enumerate(SCENES.items())
        }


@pytest.mark.parametrize("name", SCENES)
def test_both_servers_reply_the_same(
    stories: dict[str, tuple[Future[Story], Future[Story]]], name: str
) -> None:
    mine, its = (future.result(timeout=30) for future in stories[name])
    assert [reply for _, reply in mine] == [reply for _, reply in its]
    for (when, reply), (expected_when, _) in zip(mine, its, strict=True):
        assert abs(when - expected_when) < SLACK_S, f"{reply!r} after {when:.2f} s"
