"""Ranges of a topic: repeatable reads, including messages that are not dispatched yet."""

from __future__ import annotations

from history.finished import FIRST_MS, finished, make_store
from history.stores import BY_HAND, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalkd_py.history.queries.ranges import MessageRange, MessageState
from beanstalkd_py.history.store import Store, StoreReader


def no_fault(fault: object) -> None:
    raise AssertionError(fault)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.booleans(),
)
def test_a_range_has_the_messages_between_its_bounds(
    tmp_path_factory, kinds, dispatched, low, high, is_closed
):
    """Also if only some messages are dispatched, and with several queues."""
    folder = tmp_path_factory.mktemp("part") / "store"
    messages = [
        finished(number, "mails" if is_ours else "other", queue_id=queue)
        for number, (is_ours, queue) in enumerate(kinds)
    ]
    with opened(folder) as store:
        store.append(messages[:dispatched])
        store.dispatch()
        store.append(messages[dispatched:])
        stored = list(store.scan())
        if is_closed:
            store.dispatch()
    offsets = [each.offset for each in stored] + [store.log.end] * 41
    bounds = {"begin": FIRST_MS + 1000 * low, "end": FIRST_MS + 1000 * high}
    wanted = [each for each in stored if each.topic == "mails"]
    with StoreReader.open(folder) as reader:
        timed = MessageRange(reader, "mails", no_fault, **bounds)
        found = [each.message for each in timed]
        assert found == [
            each for each in wanted if bounds["begin"] <= each.store_timestamp <= bounds["end"]
        ]
        assert timed.count() == len(found)
        placed = MessageRange(reader, "mails", no_fault, offset=offsets[low], log_end=offsets[high])
        assert [each.message for each in placed] == [
            each for each in wanted if offsets[low] <= each.offset < offsets[high]
        ]
        assert placed.count() == len(list(placed))


def test_messages_that_expire_during_a_read_are_reported(tmp_path):
    folder = make_store(tmp_path / "store", [finished(number) for number in range(200)])
    with StoreReader.open(folder) as reader:
        reading = iter(MessageRange(reader, "mails", no_fault))
        first = [next(reading) for _ in range(3)]
        for path in sorted((folder / "commitlog").iterdir())[:-1]:
            path.unlink()
        rest = list(reading)
    assert len(first) + len(rest) == 200
    fates = [each.state for each in rest]
    gone = fates.count(MessageState.EXPIRED)
    assert gone > 0
    # The reader finishes the open file, then reports the removed ones, and reads the last file.
    assert fates.count(MessageState.FOUND) == len(rest) - gone
    assert all((each.message is None) == (each.state is not MessageState.FOUND) for each in rest)


def test_messages_dispatched_between_two_reads_are_found(tmp_path):
    """The range is opened before the messages are dispatched, and read afterwards."""
    with Store.open(tmp_path / "store", BY_HAND) as store:
        store.append([finished(0)])
        store.dispatch()
        store.append([finished(number) for number in range(1, 50)])
        with StoreReader.open(tmp_path / "store") as reader:
            part = MessageRange(reader, "mails", no_fault)
            assert part.count() == 50
            store.dispatch()
            store._save()
            store.append([finished(50)])
            assert len(list(part)) == part.count() == 50
