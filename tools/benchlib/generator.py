"""The process that applies a load: `python -m benchlib.generator PORT PLAN`; PLAN is JSON.

It creates jobs, tubes and idle connections, prints `ready` and waits for a line on stdin. The last
line of stdout is one JSON object: the fields of LoadResult that clients measure, or `error`.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import socket
import sys
import time
from collections.abc import Iterable

from beanstalkd_py.core.load_generator import Command, Load, LoadFailedError, Role

from .load import LoadPlan
from .servers import HOST

LIMIT_S = 1800
"""The system ends the process after this time."""
STALL_S = 30.0
"""The longest time without a reply."""
BATCH = 500
IDLE_BATCH = 256
"""Connections opened before a pause for the server to accept them."""
IDLE_PAUSE_S = 0.005
YEAR_S = 31_536_000
FIRST_PRI = 1024
"""The first priority that is not urgent."""
SHARES = (0.5, 0.99, 0.999)
COMMANDS = (Command.PUT, Command.RESERVE, Command.DELETE)


class Generator:
    """The connections of one load; they stay open until the process ends."""

    def __init__(self, port: int, plan: LoadPlan) -> None:
        self._port = port
        self._plan = plan
        self._load = Load(plan.inflight, plan.body, pri_spread=plan.pri_spread, unique=plan.unique)
        self._sockets: list[socket.socket] = []
        self._timed_s = 0.0
        self._watched = [b"bench-watch-%d" % number for number in range(plan.watch)]

    def prepare(self) -> None:
        plan = self._plan
        if plan.fill or plan.prefill_tubes:
            with self._connect() as filler:
                if plan.watch:
                    self._fill_watched(filler)
                elif plan.unique:
                    self._fill_unique(filler, plan.fill)
                else:
                    self._fill(filler, plan.fill)
                # A delayed job keeps its tube without a ready job.
                tubes = (b"use bench-%d\r\n" % number for number in range(plan.prefill_tubes))
                _send(filler, (tube + self._put(YEAR_S, 1) for tube in tubes), replies=2)
        for number in range(plan.idle):
            self._sockets.append(self._connect())
            if number % IDLE_BATCH == IDLE_BATCH - 1:
                time.sleep(IDLE_PAUSE_S)
        for number in range(plan.connections):
            client = self._connect()
            self._sockets.append(client)
            if plan.tube_per_connection:
                tube = b"bench-own-%d" % number
                _send(client, [b"use %b\r\nwatch %b\r\nignore default\r\n" % (tube, tube)], 3)
            watches = [b"watch %b\r\n" % tube for tube in self._watched]
            _send(client, [*watches, b"ignore default\r\n"] if watches else [], 1)
            self._load.add(client.fileno(), self._role())

    def _role(self) -> Role:
        if self._plan.puts_only:
            return Role.PRODUCER
        if self._plan.watch:
            return Role.DRAIN
        return Role.CONSUMER if self._plan.take else Role.CYCLES

    def run(self) -> None:
        plan = self._plan
        if plan.take:
            self._take()
        elif plan.watch:
            begun = time.perf_counter()
            self._load.start(0, LIMIT_S)
            self._run_to_end()
            self._timed_s = time.perf_counter() - begun
        elif plan.seconds:
            self._timed_s = plan.seconds
            self._load.start(plan.warmup, plan.seconds)
            self._run_to_end()

    def result(self, cpu_s: float) -> dict[str, float]:
        times = self._load.measured(Command.ALL, SHARES)
        commands = sum(map(self._load.replies, COMMANDS))
        per_s = times.count / self._timed_s if self._timed_s else 0.0
        busy = 100 * cpu_s / commands * per_s if commands else 0.0
        p50, p99, p999 = (1e6 * within for within in times.within)
        return {
            "commands": commands,
            "ops_per_s": per_s,
            "p50_us": p50,
            "p99_us": p99,
            "p999_us": p999,
            "max_us": times.max_s * 1e6,
            "generator_busy_percent": busy,
        }

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((HOST, self._port), STALL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _put(self, delay: int, body: int) -> bytes:
        pri = FIRST_PRI + random.randrange(self._plan.pri_spread)
        return b"put %d %d 600 %d\r\n%b\r\n" % (pri, delay, body, b"x" * body)

    def _fill(self, filler: socket.socket, jobs: int) -> None:
        _send(filler, (self._put(0, self._plan.body) for _ in range(jobs)), replies=1)

    def _fill_unique(self, filler: socket.socket, jobs: int) -> None:
        load = Load(BATCH, self._plan.body, unique=True)
        load.add(filler.fileno(), Role.PRODUCER)
        load.start(0, LIMIT_S, rounds=-(-jobs // BATCH))
        while load.run(1.0):
            pass

    def _fill_watched(self, filler: socket.socket) -> None:
        tubes = itertools.islice(itertools.cycle(self._watched), self._plan.fill)
        puts = (b"use %b\r\n%b" % (tube, self._put(0, self._plan.body)) for tube in tubes)
        _send(filler, puts, replies=2)

    def _run_to_end(self) -> None:
        while self._load.run(1.0):
            if self._load.silence_s > STALL_S:
                raise TimeoutError(f"no reply for {STALL_S:g} s")

    def _take(self) -> None:
        """Reserve and delete jobs, which is timed, and put as many, which is not."""
        plan = self._plan
        rounds = -(-plan.take // plan.inflight)
        start = time.perf_counter()
        with self._connect() as filler:
            while (begun := time.perf_counter()) < start + plan.warmup + plan.seconds:
                timed = begun >= start + plan.warmup
                self._load.start(0, 3600 if timed else 0, rounds)
                self._run_to_end()
                self._timed_s += time.perf_counter() - begun if timed else 0
                self._fill(filler, rounds * plan.inflight)


def _send(connection: socket.socket, commands: Iterable[bytes], replies: int) -> None:
    """Send commands in batches; `replies` is the number of lines that answer one of them."""
    rest = iter(commands)
    with connection.makefile("rb") as lines:
        while batch := list(itertools.islice(rest, BATCH)):
            connection.sendall(b"".join(batch))
            for _ in range(replies * len(batch)):
                line = lines.readline(256)
                if not line.startswith((b"INSERTED ", b"USING ", b"WATCHING ")):
                    raise ConnectionError(f"unexpected reply before the load: {line[:40]!r}")


def main() -> int:
    signal.alarm(LIMIT_S)
    try:
        generator = Generator(int(sys.argv[1]), LoadPlan(**json.loads(sys.argv[2])))
        generator.prepare()
        print("ready", flush=True)
        sys.stdin.readline()
        before_s = time.process_time()
        generator.run()
        result: dict[str, object] = {**generator.result(time.process_time() - before_s)}
    except (OSError, LoadFailedError) as error:
        refusal = f": {error.refusal}" if isinstance(error, LoadFailedError) else ""
        result = {"error": f"{error}{refusal}"}
    print(json.dumps(result))
    return int("error" in result)


if __name__ == "__main__":
    sys.exit(main())
