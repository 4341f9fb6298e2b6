"""Scrapes a server's metrics like Prometheus."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from servers import Server, free_port, ours

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    kind: str
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Metrics:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and values of the samples with this name and at least these labels."""
        wanted = labels.items()
        found = [one for one in self._samples if one.name == name and wanted <= one.labels.items()]
        return [(one.labels, one.value) for one in found]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with this name and labels; there must be some."""
        found = self.all(name, **labels)
        assert found, f"no {name} {labels}"
        return sum(value for _, value in found)

    def labels(self, name: str, label: str) -> set[str]:
        """Return the values of one label."""
        return {labels[label] for labels, _ in self.all(name)}


@dataclass(frozen=True, slots=True)
class Watched:
    """A server and the address of its metrics."""

    server: Server
    port: int

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        return get(self.port, path, method, **headers)

    def scrape(self) -> Metrics:
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        return Metrics(answer.text)


def get(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        kind = response.getheader("Content-Type", "")
        return Answer(response.status, kind, response.read())
    finally:
        connection.close()


@contextmanager
def watched(*args: str | Path) -> Iterator[Watched]:
    """Start our server with these arguments and --metrics."""
    port = free_port()
    with ours("--metrics", f"127.0.0.1:{port}", *args) as server:
        yield Watched(server, port)
