"""Scripts of commands for tests: a corpus of corner cases, and a hypothesis strategy."""

from __future__ import annotations

from core.rig import put_line
from hypothesis import strategies as st

CORPUS: list[bytes] = [
    put_line(b"hello") + b"reserve\r\ndelete 1\r\n",
    put_line(b"") + b"peek 1\r\npeek-ready\r\npeek-delayed\r\npeek-buried\r\n",
    put_line(b"\r\n\r\n") + b"peek 1\r\nreserve\r\nrelease 1 5 0\r\nstats-job 1\r\n",
    put_line(b"put 0 0 1 1\r\nx") + b"kick 1\r\nlist-tubes\r\n",
    b"put 0 0 1 3\r\nabcdefput 0 0 1 1\r\na\r\n",
    b"put 0 0 1 70000\r\n" + b"z" * 70002 + b"list-tube-used\r\n",
    b"put 0 0 1 1x\r\na\r\n",
    b"put 0 0 1\r\nput -1 0 1 1\r\nput 4294967296 0 1 1\r\n",
    b"\r\n\r\n\r\n",
    b"a lone\nline feed\rand a lone return\r\n",
    b"\r\r\n\n\r\n",
    b"x" * 222 + b"\r\n" + b"x" * 223 + b"\r\n" + b"x" * 224 + b"\r\n",
    b"x" * 1000 + b"\r\n" + b"y" * 1000 + b"\r" * 500 + b"\r\nlist-tube-used\r\n",
    b"watch a\r\nwatch b\r\nignore default\r\nlist-tubes-watched\r\nignore a\r\nignore b\r\n",
    b"use t\r\n" + put_line(b"1", pri=7) + b"stats-tube t\r\nuse default\r\nlist-tubes\r\n",
    b"stats\r\nlist-tube-used\r\nstats\r\n",
    b"reserve-with-timeout 0\r\nreserve-with-timeout 0 x\r\nreserve-with-timeout 2147483648\r\n",
    put_line(b"1", ttr=1) + b"reserve\r\nreserve\r\nreserve-with-timeout 5\r\ntouch 1\r\n",
    put_line(b"1") * 3
    + b"reserve\r\nreserve\r\nbury 1 0\r\nbury 2 9\r\nkick 9\r\nreserve-job 3\r\n",
    b"pause-tube default 10\r\npause-tube default\r\npause-tube nosuch 1\r\npause-tube -x 1\r\n",
    b"nul\0byte\r\nuse ok\0\r\nlist-tube-used\r\n",
    b"kick -1\r\nkick 4294967296\r\nkick \t+3 and more\r\nkick x\r\n",
    b"list-tube-used\r\nquit\r\nlist-tube-used\r\n",
    b"reserve\r\n" + put_line(b"after a waiting reserve") + b"list-tube-used\r\n",
    b"put 0 0 1 5\r\nunfinished",
    b"unfinished line",
]

_NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 1023, 1024, 2**32 - 1])
_TUBES = st.sampled_from([b"default", b"a", b"b", b"a-very-long-name" * 12])
_WORDS = st.sampled_from(
    [
        b"delete %d",
        b"release %d 0 0",
        b"release %d 1 3",
        b"bury %d 0",
        b"touch %d",
        b"kick %d",
        b"kick-job %d",
        b"peek %d",
        b"reserve-job %d",
        b"reserve-with-timeout %d",
        b"stats-job %d",
    ]
)
_LINES = st.sampled_from(
    [
        b"reserve",
        b"peek-ready",
        b"peek-delayed",
        b"peek-buried",
        b"list-tubes",
        b"list-tube-used",
        b"list-tubes-watched",
        b"stats",
        b"quit",
        b"statsx",
        b"",
        b"\r",
        b"\n",
        b"reserve ",
    ]
)
_TUBE_LINES = st.sampled_from(
    [b"use %b", b"watch %b", b"ignore %b", b"stats-tube %b", b"pause-tube %b 1"]
)

COMMANDS: st.SearchStrategy[bytes] = st.one_of(
    st.builds(
        put_line,
        st.one_of(st.binary(max_size=300), st.sampled_from([b"\r", b"\n", b"\r\n" * 9])),
        _NUMBERS,
        st.sampled_from([0, 0, 0, 1, 9]),
        st.sampled_from([0, 1, 2, 100]),
    ),
    st.builds(lambda word, number: word % number + b"\r\n", _WORDS, st.integers(0, 12)),
    st.builds(lambda line: line + b"\r\n", _LINES),
    st.builds(lambda line, tube: line % tube + b"\r\n", _TUBE_LINES, _TUBES),
    st.binary(max_size=260),
    st.builds(lambda size: b"w" * size + b"\r\n", st.integers(210, 460)),
)

SCRIPTS: st.SearchStrategy[bytes] = st.lists(COMMANDS, min_size=3, max_size=30).map(b"".join)
