"""The core and the model get the same commands and must agree on all replies and statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from core.model import Job, Model, Session, Tube
from core.rig import SECOND, START, Rig, RigClient, put_line
from hypothesis import given, settings
from hypothesis import strategies as st

SESSIONS = 4
TUBES = ("default", "a", "b")
STATES = ("any", "ready", "delayed", "reserved", "buried")

tubes = st.sampled_from(TUBES)
ids = st.integers(1, 12)
priorities = st.sampled_from([0, 1, 1023, 1024])
delays = st.sampled_from([0, 0, 1, 2, 5])
ttrs = st.sampled_from([0, 1, 2, 3, 60])
keys = st.sampled_from(["k", "l"])

ACTIONS = st.one_of(
    st.tuples(st.just("with_key"), keys),
    st.tuples(st.just("with_window"), keys, st.integers(1, 3)),
    st.tuples(st.just("put"), priorities, delays, ttrs),
    st.tuples(st.just("put"), priorities, st.just(0), ttrs),
    st.tuples(st.just("reserve"), st.one_of(st.none(), st.integers(0, 4))),
    st.tuples(st.just("reserve"), st.just(0)),
    st.tuples(st.just("reserve_batch"), st.integers(1, 4), st.integers(0, 4)),
    st.tuples(st.just("reserve_batch"), st.just(1000), st.just(0)),
    st.tuples(st.just("abort")),
    st.tuples(st.just("reserve_job"), ids),
    st.tuples(st.just("await_job"), ids, st.integers(0, 4)),
    st.tuples(st.just("await_job"), ids, st.integers(1, 4)),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("release"), ids, priorities, delays),
    st.tuples(st.just("bury"), ids, priorities),
    st.tuples(st.just("touch"), ids),
    st.tuples(st.just("kick"), st.integers(0, 3)),
    st.tuples(st.just("kick_job"), ids),
    st.tuples(st.just("use"), tubes),
    st.tuples(st.just("watch"), tubes),
    st.tuples(st.just("ignore"), tubes),
    st.tuples(st.just("pause"), tubes, st.integers(0, 3)),
    st.tuples(
        *(st.just("list_jobs"), tubes, st.sampled_from(STATES), st.integers(0, 12)),
        st.sampled_from([1, 2, 1000]),
    ),
    st.tuples(st.just("truncate"), tubes),
    st.tuples(st.just("move"), ids, tubes, priorities, delays),
    st.tuples(st.just("reconnect")),
    st.tuples(st.just("wait"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.integers(1, 4)),
)
# Long ones, because faults need jobs, waiters and timers at the same time.
STEPS = st.lists(st.tuples(st.integers(0, SESSIONS - 1), ACTIONS), min_size=50, max_size=150)

LINES = {
    "with_key": b"with unique=%b\r\n",
    "with_window": b"with unique=%b window=%d\r\n",
    "abort": b"reserve-abort\r\n",
    "reserve_batch": b"reserve-batch %d %d\r\n",
    "reserve_job": b"reserve-job %d\r\n",
    "delete": b"delete %d\r\n",
    "release": b"release %d %d %d\r\n",
    "bury": b"bury %d %d\r\n",
    "touch": b"touch %d\r\n",
    "kick": b"kick %d\r\n",
    "kick_job": b"kick-job %d\r\n",
    "use": b"use %b\r\n",
    "watch": b"watch %b\r\n",
    "ignore": b"ignore %b\r\n",
    "pause": b"pause-tube %b %d\r\n",
    "truncate": b"truncate %b\r\n",
    "move": b"move %d %b %d %d\r\n",
    "list_jobs": b"list-jobs %b %b %d %d\r\n",
}


@dataclass
class Pair:
    """The same session on both sides."""

    model: Session
    real: RigClient


class Comparison:
    """Both sides, and the comparison after every step."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.model = Model(rig.now.mono)
        self.pairs = [self.open() for _ in range(SESSIONS)]
        self.watcher = rig.client()  # reads statistics, and keeps only `default` alive
        self.step_ns = 0

    def open(self) -> Pair:
        return Pair(self.model.open(), self.rig.client())

    def step(self, which: int, action: tuple[object, ...]) -> None:
        name, *arguments = action
        # No two commands share a fraction of a second, so their deadlines never coincide.
        self.go_on(1)
        pair = self.pairs[which]
        if name == "wait":
            assert isinstance(arguments[0], int)
            self.go_on(arguments[0] * SECOND)
        elif name == "reconnect":
            self.model.close(pair.model)
            pair.real.close()
            self.pairs[which] = self.open()
        elif name == "abort" or not pair.model.waits:
            pair.real.send(line_of(str(name), arguments))
            getattr(self.model, str(name))(pair.model, *arguments)
        for other in self.pairs:
            assert other.real.read() == other.model.out
            other.model.out = b""

    def go_on(self, nanoseconds: int) -> None:
        """Advance the time as for a server: every timer on its own nanosecond."""
        end = self.rig.now.mono + nanoseconds
        while (at := self.rig.tick()) <= end:
            self.rig.advance(at - self.rig.now.mono)
        self.rig.advance(end - self.rig.now.mono)
        self.model.run_until(end)

    def check(self) -> None:
        names = [tube.encode() for tube in self.model.tubes]
        listed = self.watcher.ask(b"list-tubes\r\n")
        assert listed.split(b"\n- ")[1:] == [*names[:-1], names[-1] + b"\n\r\n"]
        for tube in self.model.tubes.values():
            stats = self.watcher.stats(b"stats-tube " + tube.name.encode())
            assert stats == self.tube_stats(tube)
        for number in range(1, self.model.last_id + 1):
            job = self.model.jobs.get(number)
            if job is None:
                assert self.watcher.body(number) is None
            else:
                shown = self.watcher.job(number)
                del shown["file"]
                assert shown == self.job_stats(job)
        self.check_sums()

    def check_sums(self) -> None:
        counters, jobs = self.rig.counters, self.model.jobs.values()
        for state in ("ready", "reserved", "delayed", "buried"):
            assert getattr(counters, state) == sum(job.state == state for job in jobs)
        assert counters.urgent == sum(job.state == "ready" and job.pri < 1024 for job in jobs)
        assert counters.tubes == len(self.model.tubes)
        assert counters.total_jobs == self.model.total
        assert counters.job_timeouts == self.model.timeouts
        assert counters.connections == SESSIONS + 1
        waiting = [session for session in self.model.sessions if session.waiting_since]
        assert counters.waiting == len(waiting)

    def tube_stats(self, tube: Tube) -> dict[str, str]:
        def count(state: str) -> int:
            return len(self.model.in_state(tube, state))

        ready = self.model.in_state(tube, "ready")
        watching = [session for session in self.model.sessions if tube in session.watched]
        default = tube.name == "default"  # the watcher uses and watches it
        left = max(0, tube.unpause_at - self.model.now) if tube.pause else 0
        numbers = {
            "current-jobs-urgent": sum(job.pri < 1024 for job in ready),
            "current-jobs-ready": len(ready),
            "current-jobs-reserved": count("reserved"),
            "current-jobs-delayed": count("delayed"),
            "current-jobs-buried": count("buried"),
            "total-jobs": tube.total,
            "current-using": sum(s.use is tube for s in self.model.sessions) + default,
            "current-watching": len(watching) + default,
            "current-waiting": sum(bool(s.waiting_since) for s in watching),
            "cmd-delete": tube.deletes,
            "cmd-pause-tube": tube.pauses,
            "pause": tube.pause // SECOND,
            "pause-time-left": left // SECOND,
        }
        shown = {key: str(number) for key, number in numbers.items()}
        return {"name": f'"{tube.name}"', **shown}

    def job_stats(self, job: Job) -> dict[str, str]:
        timed = job.state in ("reserved", "delayed")
        numbers = {
            "pri": job.pri,
            "age": (self.model.now - job.created) // SECOND,
            "delay": job.delay,
            "ttr": job.ttr,
            "time-left": (job.at - self.model.now) // SECOND if timed else 0,
            **job.counts,
        }
        first = {"id": str(job.id), "tube": f'"{job.tube.name}"', "state": job.state}
        return {**first, **{key: str(number) for key, number in numbers.items()}}


def line_of(name: str, arguments: list[object]) -> bytes:
    """The command as bytes."""
    values = tuple(item.encode() if isinstance(item, str) else item for item in arguments)
    if name == "put":
        pri, delay, ttr = values
        assert isinstance(pri, int) and isinstance(delay, int) and isinstance(ttr, int)
        return put_line(b"x", pri, delay, ttr)
    if name == "await_job":
        number, seconds = values
        return b"wait %b %b\r\n" % (text(seconds), text(number))
    if name == "reserve":
        (seconds,) = values
        return b"reserve\r\n" if seconds is None else b"reserve-with-timeout %b\r\n" % text(seconds)
    return LINES[name] % values


def text(number: object) -> bytes:
    return str(number).encode()


def compare(rig: Rig, steps: list[tuple[int, tuple[object, ...]]]) -> Comparison:
    comparison = Comparison(rig)
    for which, action in steps:
        comparison.step(which, action)
    comparison.check()
    return comparison


@given(steps=STEPS)
def test_the_core_does_what_the_model_does(steps: list[tuple[int, tuple[object, ...]]]) -> None:
    with Rig() as rig:
        compare(rig, steps)


@given(steps=STEPS)
@settings(max_examples=30)
def test_a_binlog_changes_nothing_and_keeps_everything(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, tuple[object, ...]]]
) -> None:
    """Also with a binlog; after a restart every job has its state.

    By design there are no entries for reserves, touches and timeouts since the last entry, nor for
    the state Reserved. So a job that was reserved by its id is in its state before that.
    """
    folder: Path = tmp_path_factory.mktemp("binlog")
    with Rig(folder, file_size=4096, sync_interval_ns=-1) as rig:
        model = compare(rig, steps).model
        now = rig.now
    with Rig(folder, file_size=4096, sync_interval_ns=-1, now=now) as rig:
        client = rig.client()
        assert rig.warnings() == []
        for job in model.jobs.values():
            shown = client.job(job.id)
            kept = (shown["state"], shown["pri"], shown["delay"], shown["ttr"], shown["age"])
            counts = (shown["releases"], shown["buries"], shown["kicks"])
            age = (now.mono - job.created) // SECOND
            expected = [str(n) for n in (job.pri, job.delay, job.ttr, age)]
            if job.state != "reserved" and not job.unwritten:
                assert kept == (job.state, *expected)
            assert counts == tuple(str(job.counts[key]) for key in ("releases", "buries", "kicks"))
        assert rig.counters.total_jobs == 0
        found = sum(getattr(rig.counters, s) for s in ("ready", "delayed", "buried"))
        assert found == len(model.jobs)
        keys = {(job.tube.name, job.key) for job in model.jobs.values() if job.key}
        for tube_name, key in keys | model.ended.keys():
            client.use(tube_name.encode())
            client.do(b"with unique=" + key.encode(), b"WITH")
            owner = model.owner(Tube(tube_name, 0), key)
            assert client.put() == (owner or int(rig.shared.last_id))
            if not owner:
                client.do(b"delete %d" % int(rig.shared.last_id), b"DELETED")
        for job in model.jobs.values():
            if job.unwritten:
                client.do(b"delete %d" % job.id, b"DELETED")
        for tube in model.tubes.values():
            buried = sorted(model.in_state(tube, "buried"), key=lambda job: job.at)
            client.use(tube.name.encode())
            for job in (job for job in buried if not job.unwritten):
                assert client.ask(b"peek-buried\r\n").startswith(b"FOUND %d " % job.id)
                client.do(b"delete %d" % job.id, b"DELETED")


@given(steps=STEPS)
@settings(max_examples=30)
def test_with_a_history_a_restart_knows_reserves_touches_and_timeouts_too(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, tuple[object, ...]]]
) -> None:
    """Only reservations are lost: reserved jobs are ready, as when their clients leave."""
    folder: Path = tmp_path_factory.mktemp("binlog")
    with Rig(folder, file_size=1 << 20, sync_interval_ns=-1, history=True) as rig:
        model = compare(rig, steps).model
        now = rig.now
        rig.stop()  # a kill would lose the latest reservations
        live_bytes = rig.counters.binlog_live_bytes
        assert rig.counters.deferred_dropped == 0
    with Rig(folder, file_size=1 << 20, sync_interval_ns=-1, history=True, now=now) as rig:
        client = rig.client()
        assert rig.warnings() == []
        assert rig.counters.binlog_live_bytes == live_bytes
        for job in model.jobs.values():
            shown = client.job(job.id)
            assert shown["state"] == ("ready" if job.state == "reserved" else job.state)
            counts = {key: int(shown[key]) for key in job.counts}
            assert counts == job.counts


def test_start_is_far_from_zero() -> None:
    """Detects a core that confuses the clocks."""
    with Rig() as rig:
        assert rig.now == START
        client = rig.client()
        job = client.put(delay=7)
        assert client.job(job)["time-left"] == "7"
        assert client.job(job)["age"] == "0"
