"""A script gets the same replies however its bytes are divided."""

from __future__ import annotations

import itertools

import pytest
from core.rig import Rig
from core.scripts import CORPUS, SCRIPTS
from hypothesis import given
from hypothesis import strategies as st

from beanstalkd_py import errors


def play(pieces: list[bytes]) -> bytes:
    """Return the output for a client that sends these pieces and then closes its sending side."""
    with Rig() as rig:
        client = rig.client()
        got = b""
        try:
            for piece in pieces:
                got += client.ask(piece)
            rig.core.finish(client.session, rig.now)
            rig.settle()
        except errors.SessionEndedError:
            pass  # by quit; earlier output can still be read
        return got + client.read()


def cut(script: bytes, offsets: list[int]) -> list[bytes]:
    """Return the script in pieces that end at these offsets."""
    ends = sorted({place % (len(script) + 1) for place in offsets})
    edges = [0, *ends, len(script)]
    return [script[start:end] for start, end in itertools.pairwise(edges)]


def byte_by_byte(script: bytes) -> list[bytes]:
    return [script[i : i + 1] for i in range(len(script))]


@pytest.mark.parametrize("script", CORPUS, ids=lambda script: repr(script[:30]))
def test_byte_by_byte_or_at_once(script: bytes) -> None:
    if len(script) > 10_000:
        pieces = cut(script, list(range(0, len(script), 997)))
    else:
        pieces = byte_by_byte(script)
    assert play(pieces) == play([script])


@given(script=SCRIPTS, offsets=st.lists(st.integers(min_value=0), max_size=12))
def test_random_pieces(script: bytes, offsets: list[int]) -> None:
    whole = play([script])
    assert play(cut(script, offsets)) == whole
    assert play(byte_by_byte(script)) == whole


@given(scripts=st.lists(SCRIPTS, min_size=2, max_size=3))
def test_a_pipeline_is_its_commands_one_after_another(scripts: list[bytes]) -> None:
    assert play(scripts) == play([b"".join(scripts)])
