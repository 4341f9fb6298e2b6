"""Messages of a stream: encoded, decoded, damaged."""

from __future__ import annotations

import pytest

from beanstalkd_py.errors import ReplicationError
from beanstalkd_py.replication.piece import HEADER, Piece

PIECE = Piece(7, 3, 12, 4096, b"bytes")


def test_a_message_has_the_piece() -> None:
    assert Piece.of_message(PIECE.headers(), PIECE.data) == PIECE
    fence = Piece(7, 3, 12, 4096)
    assert Piece.of_message(fence.headers(), b"") == fence


def test_the_header_is_small() -> None:
    """Each message has it, and small ones are frequent."""
    assert PIECE.headers() == {HEADER: "7 3 12 4096 b19943ce"}


@pytest.mark.parametrize(
    "headers", [None, {}, {HEADER: ""}, {HEADER: "1 2 3 4"}, {HEADER: "a b c d e"}]
)
def test_a_message_of_others_is_refused(headers: dict[str, str] | None) -> None:
    with pytest.raises(ReplicationError, match="no valid header"):
        Piece.of_message(headers, b"bytes")


def test_a_damaged_message_is_refused() -> None:
    for number in range(len(PIECE.data) * 8):
        data = bytearray(PIECE.data)
        data[number // 8] ^= 1 << number % 8
        with pytest.raises(ReplicationError, match="checksum"):
            Piece.of_message(PIECE.headers(), bytes(data))
