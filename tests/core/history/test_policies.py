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
