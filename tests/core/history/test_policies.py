"""The timeline of a job that a tube policy delays and buries."""

from __future__ import annotations

from pathlib import Path

from core.history.test_server_binlogs import messages_of
from core.rig import SECOND, Rig

from beanstalkd_py.core.tube_policy import MOVE, TubePolicy


def test_a_delayed_return_is_a_timeout_or_a_release(tmp_path: Path) -> None:
    policies = [
        TubePolicy("*", release_backoff="exponential:5s..9s", max_reserves=3, then=MOVE + "default")
    ]
    with Rig(tmp_path, history=True, sync_interval_ns=-1) as rig:
        rig.core.set_policies(policies, rig.now)
        client = rig.client()
        number = client.put(ttr=1)
        client.reserve()
        rig.advance(2 * SECOND)
        rig.advance(6 * SECOND)
        client.reserve()
        client.do(b"release %d 0 0" % number, b"RELEASED")
        rig.advance(10 * SECOND)
        client.reserve()
        client.do(b"release %d 0 0" % number, b"RELEASED")
        client.do(b"delete %d" % number, b"DELETED")
        rig.advance(SECOND)
        (message,) = messages_of(tmp_path)
    events = message.properties["timeline"].split(";")
    kinds = [event.partition("@")[0] for event in events]
    assert " ".join(kinds) == "put reserve timeout due reserve release due reserve bury delete"
    assert events[5].endswith("delay=9")


def test_attributes_change_no_timeline(tmp_path: Path) -> None:
    with Rig(tmp_path, history=True, sync_interval_ns=-1, file_size=4096) as rig:
        client = rig.client()
        client.do(b"with unique=k window=1000 expires=1000 delay-ms=1500", b"WITH")
        deleted = client.put(b"deleted")
        client.do(b"with unique=k", b"WITH")
        assert client.put(b"duplicate") == deleted
        client.do(b"with expires=10", b"WITH")
        client.put(b"expired", delay=100)
        for _ in range(30):  # moves both to later files
            client.do(b"delete %d" % client.put(b"c" * 300), b"DELETED")
        rig.advance(2 * SECOND)
        assert client.reserve() == deleted
        rig.advance(SECOND)
        client.do(b"delete %d" % deleted, b"DELETED")
        rig.advance(8 * SECOND)
        assert rig.counters.records_migrated > 0
        rig.advance(SECOND)
        messages = messages_of(tmp_path)
    timelines = {
        message.body: [event.partition("@")[0] for event in properties.split(";")]
        for message in messages
        if (properties := message.properties["timeline"])
    }
    assert len(messages) == 32
    assert timelines[b"deleted"] == ["put", "due", "reserve", "delete"]
    assert timelines[b"expired"] == ["put", "delete"]
    tags = {message.body: message.properties["TAGS"] for message in messages}
    assert (tags[b"deleted"], tags[b"expired"]) == ("deleted", "expired")
