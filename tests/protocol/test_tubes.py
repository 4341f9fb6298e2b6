"""use, watch, ignore, the lists, pause-tube, and how long a tube exists."""

from __future__ import annotations

from processes import eventually
from wire import Client, Connect, list_of, wait_for

NOT_FOUND = b"NOT_FOUND\r\n"


def watched(client: Client) -> list[bytes]:
    """Return the connection's watch list."""
    return list_of(client.ask(b"list-tubes-watched\r\n"))


def known(client: Client, prefix: bytes) -> list[bytes]:
    """Return the server's tubes with this prefix."""
    names = list_of(client.ask(b"list-tubes\r\n"))
    return [name for name in names if name.startswith(prefix)]


def test_a_new_connection_uses_and_watches_default(connect: Connect) -> None:
    client = connect()
    assert client.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    assert client.ask(b"list-tubes-watched\r\n") == b"OK 14\r\n---\n- default\n\r\n"


def test_a_watched_tube_counts_once(client: Client, tube: bytes) -> None:
    assert client.ask(b"watch %b.b\r\n" % tube) == b"WATCHING 2\r\n"
    assert client.ask(b"watch %b.b\r\n" % tube) == b"WATCHING 2\r\n"
    assert watched(client) == [tube, tube + b".b"]
    assert client.stats(b"stats-tube %b.b" % tube)["current-watching"] == "1"
    assert client.ask(b"ignore %b.b\r\n" % tube) == b"WATCHING 1\r\n"
    assert watched(client) == [tube]


def test_the_last_watched_tube_is_kept(client: Client, tube: bytes) -> None:
    assert client.ask(b"ignore %b.nosuch\r\n" % tube) == b"WATCHING 1\r\n"
    assert client.ask(b"ignore %b\r\n" % tube) == b"NOT_IGNORED\r\n"
    assert watched(client) == [tube]


def test_using_and_watching_are_apart(client: Client, tube: bytes) -> None:
    assert client.ask(b"use %b.b\r\n" % tube) == b"USING %b.b\r\n" % tube
    assert watched(client) == [tube]
    assert client.ask(b"list-tube-used\r\n") == b"USING %b.b\r\n" % tube


def test_tubes_are_listed_in_the_order_of_their_creation(
    connect: Connect, client: Client, tube: bytes
) -> None:
    other = connect()
    names = [b"%b.%d" % (tube, number) for number in (5, 3, 9, 1)]
    for number, name in enumerate(names):
        actor, command = (other, b"use") if number % 2 else (client, b"watch")
        actor.ask(b"%b %b\r\n" % (command, name))
        if command == b"use":
            actor.put()
    assert known(client, tube + b".") == names
    assert list_of(client.ask(b"list-tubes\r\n"))[0] == b"default"
    assert watched(client) == [tube, names[0], names[2]]


def test_a_tube_exists_while_something_needs_it(
    connect: Connect, client: Client, tube: bytes
) -> None:
    name = tube + b".short"
    assert client.ask(b"stats-tube %b\r\n" % name) == NOT_FOUND
    client.ask(b"use %b\r\n" % name)
    job = client.put()
    watcher = connect()
    watcher.ask(b"watch %b\r\n" % name)
    wait_for(client, name, "current-watching", 1)
    client.ask(b"use default\r\n")
    assert known(client, name) == [name]
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert known(client, name) == [name]
    watcher.close()
    for _ in range(100):
        if not known(client, name):
            break
        client.silent(0.01)
    assert known(client, name) == []
    assert client.ask(b"stats-tube %b\r\n" % name) == NOT_FOUND
    assert client.ask(b"pause-tube %b 0\r\n" % name) == NOT_FOUND


def test_a_new_tube_of_the_same_name_has_no_counters_and_no_pause(
    client: Client, tube: bytes
) -> None:
    name = tube + b".short"
    client.ask(b"use %b\r\n" % name)
    client.ask(b"pause-tube %b 100\r\n" % name)
    client.ask(b"delete %d\r\n" % client.put())
    stats = client.stats(b"stats-tube " + name)
    keys = ("total-jobs", "cmd-delete", "cmd-pause-tube", "pause", "pause-time-left")
    assert [stats[key] for key in keys] == ["1", "1", "1", "100", "99"]
    client.ask(b"use default\r\n")
    client.ask(b"use %b\r\n" % name)
    stats = client.stats(b"stats-tube " + name)
    assert [stats[key] for key in keys] == ["0", "0", "0", "0", "0"]


def test_default_always_exists(client: Client) -> None:
    """A tube without users and watchers keeps its counters."""
    before = int(client.stats(b"stats-tube default")["cmd-pause-tube"])
    assert client.ask(b"pause-tube default 0\r\n") == b"PAUSED\r\n"
    assert int(client.stats(b"stats-tube default")["cmd-pause-tube"]) == before + 1

    def alone() -> bool:
        stats = client.stats(b"stats-tube default")
        return (stats["current-using"], stats["current-watching"]) == ("0", "0")

    assert eventually(alone)  # connections of earlier tests may be about to end


def test_a_pause_holds_back_reserving_only(client: Client, tube: bytes) -> None:
    assert client.ask(b"pause-tube %b 100\r\n" % tube) == b"PAUSED\r\n"
    job = client.put()
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert client.ask(b"peek-ready\r\n").startswith(b"FOUND %d " % job)
    client.ask(b"watch %b.b\r\nuse %b.b\r\n" % (tube, tube))
    assert client.reply() == b"USING %b.b\r\n" % tube
    assert client.put(pri=9) == client.reserve()
    client.ask(b"use %b\r\n" % tube)
    client.bury(job)
    assert client.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"


def test_lifting_a_pause_serves_the_waiters(connect: Connect, client: Client, tube: bytes) -> None:
    """A second pause replaces the first, and 0 lifts it."""
    waiter = connect()
    waiter.ask(b"watch %b\r\n" % tube)
    waiter.send(b"reserve\r\n")
    wait_for(client, tube, "current-waiting", 1)
    assert client.ask(b"pause-tube %b 4000000000\r\n" % tube) == b"PAUSED\r\n"
    assert client.ask(b"pause-tube %b 50\r\n" % tube) == b"PAUSED\r\n"
    stats = client.stats(b"stats-tube " + tube)
    assert (stats["pause"], stats["pause-time-left"]) == ("50", "49")
    job = client.put()
    assert waiter.silent()
    assert client.ask(b"pause-tube %b 0\r\n" % tube) == b"PAUSED\r\n"
    assert waiter.reply().startswith(b"RESERVED %d " % job)


def test_a_pause_is_lifted_for_the_very_next_command(client: Client, tube: bytes) -> None:
    """Commands have distinct times, so the pause has ended by then."""
    job = client.put()
    client.ask(b"pause-tube %b 100\r\n" % tube)
    client.send(b"pause-tube %b 0\r\nreserve-with-timeout 0\r\n" % tube)
    assert client.replies(2) == [b"PAUSED\r\n", b"RESERVED %d 1\r\nx\r\n" % job]


def test_a_pause_does_not_free_a_job_or_stop_its_holder(client: Client, tube: bytes) -> None:
    job = client.put()
    assert client.reserve() == job
    client.ask(b"pause-tube %b 100\r\n" % tube)
    assert client.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    assert client.ask(b"release %d 0 0\r\n" % job) == b"RELEASED\r\n"
    assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
