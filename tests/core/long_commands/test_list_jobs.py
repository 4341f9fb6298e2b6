"""list-jobs of many jobs: pages by probing ids, and from a table that is small again."""

from __future__ import annotations

from core.long_commands.rounds import Rounds, received
from core.rig import Rig, RigClient, put_line
from listing import page_of

# With so many jobs a page probes ids.
MANY = 40_000
LOOKUPS = 20_000


def puts(client: RigClient, count: int) -> None:
    for _ in range(0, count, 1000):
        client.ask_much(put_line(b"x") * 1000)


def page(client: RigClient, tube: bytes, state: bytes, after: int) -> tuple[list[int], int]:
    """Return the ids of a page, and where the next one starts."""
    line = b"list-jobs %b %b %d 1000\r\n" % (tube, state, after)
    rows, following = page_of(client.ask_much(line))
    return [int(row["id"]) for row in rows], following


def listed(client: RigClient, tube: bytes) -> list[int]:
    """Return the ids of all pages."""
    found, after = page(client, tube, b"any", 0)
    while after:
        more, after = page(client, tube, b"any", after)
        found += more
    return found


def test_a_page_ends_after_so_many_ids_without_a_row() -> None:
    with Rig() as rig:
        client = rig.client()
        puts(client, MANY)
        client.use(b"few")
        last = client.put()
        assert page(client, b"few", b"any", 0) == ([], LOOKUPS)
        assert page(client, b"few", b"any", LOOKUPS) == ([], 2 * LOOKUPS)
        assert page(client, b"few", b"any", 2 * LOOKUPS) == ([last], 0)
        assert page(client, b"few", b"any", last) == ([], 0)
        assert page(client, b"few", b"any", 2**64 - 1) == ([], 0)
        assert page(client, b"default", b"any", 0) == (list(range(1, 1001)), 1000)
        assert page(client, b"default", b"ready", MANY - 10)[0] == list(range(MANY - 9, MANY + 1))
        assert page(client, b"default", b"buried", 0) == ([], LOOKUPS)


def test_a_small_table_is_listed_at_once_whatever_the_ids() -> None:
    with Rig() as rig:
        client = rig.client()
        puts(client, 2000)
        rig.shared.last_id = 10**15
        kept = [client.put() for _ in range(3)]
        assert listed(client, b"default") == [*range(1, 2001), *kept]
        assert page(client, b"default", b"any", 2000) == (kept, 0)
        for job in range(1, 2001):
            client.ask(b"delete %d\r\n" % job)
        assert page(client, b"default", b"any", 0) == (kept, 0)


def test_a_round_executes_one_list_however_many_wait() -> None:
    with Rounds() as rounds:
        *listers, other = (rounds.client() for _ in range(3))
        for lister in listers:
            lister.sendall(b"list-jobs default any 0 1\r\n" * 10)
        replies = 0
        for number in range(1, 21):
            other.sendall(b"list-tube-used\r\n")
            rounds.run()
            assert received(other) == b"USING default\r\n"
            replies += sum(received(lister).count(b"next: 0\n\r\n") for lister in listers)
            assert replies == number
