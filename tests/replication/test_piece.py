"""Messages of a stream: encoded, decoded, damaged, and in another place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beanstalkd_py.core.shared_memory import BinlogPosition
from beanstalkd_py.replication.piece import CHECKSUM_BYTES, Piece, PieceError, decode_all

FIRST = Piece(7, 3, 12, 4096, b"bytes")
NEXT = Piece(7, 0, 12, 4101, b"more")
FENCE = Piece(8, 3, 12, 4105)


def decode(message: bytes, previous: Piece = FIRST) -> Piece:
    return Piece.decode(message, previous.epoch, previous.end)


def test_a_message_has_the_piece() -> None:
    for piece, previous in (
        (FIRST, FENCE),
        (NEXT, FIRST),
        (FENCE, NEXT),
        (Piece(1, 0, 0, 0), NEXT),
    ):
        assert decode(piece.encode(), previous) == piece


def test_a_message_that_continues_another_is_small() -> None:
    """Small ones are frequent."""
    assert len(NEXT.encode()) == 1 + CHECKSUM_BYTES + len(NEXT.data)
    assert len(replace(FIRST, epoch=1 << 31, file=1 << 20).encode()) < 32


@pytest.mark.parametrize(
    "message", [b"", b"\x94", b"\x93\1\2\3", b"\xc0", b"\x80", b"\x94\xa1a\1\1\1aaaa"]
)
def test_a_message_of_others_is_refused(message: bytes) -> None:
    with pytest.raises(PieceError):
        decode(message)


@pytest.mark.parametrize("piece", [FIRST, NEXT])
def test_a_damaged_message_is_refused(piece: Piece) -> None:
    """Whether a bit of the bytes, the checksum or the numbers is wrong, or an end is missing."""
    message = piece.encode()
    for number in range(len(message) * 8):
        data = bytearray(message)
        data[number // 8] ^= 1 << number % 8
        with pytest.raises(PieceError):
            decode(bytes(data))
    for size in range(len(message)):
        with pytest.raises(PieceError):
            decode(message[:size])


@pytest.mark.parametrize(
    "previous",
    [replace(FIRST, epoch=8), replace(FIRST, file=13), replace(FIRST, offset=4095)],
)
def test_a_message_does_not_continue_another_one(previous: Piece) -> None:
    with pytest.raises(PieceError, match="does not continue the message before it"):
        decode(NEXT.encode(), previous)


def test_messages_are_decoded_up_to_the_first_bad_one() -> None:
    start, end = 6, BinlogPosition(1, 1)
    encoded = [piece.encode() for piece in (FIRST, NEXT, FENCE)]
    assert decode_all(encoded, start, end) == [FIRST, NEXT, FENCE]
    assert decode_all([encoded[0], b"", encoded[2]], start, end) == [FIRST]
    with pytest.raises(PieceError):
        decode_all(encoded[1:], start, end)
