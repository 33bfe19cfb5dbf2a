from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from ghosted_client import sse
from ghosted_client.errors import UnexpectedAnswerError
from ghosted_client.sse import Decoder, Message

STREAM = (
    b'\xef\xbb\xbf: a comment\r\nevent: log\ndata: {"a":\r\ndata: 1}\rid: 7\n\n'
    b"data:caf\xc3\xa9\n\n: ping\n\nevent: job\n\ndata\n\nevent: job\rdata:  x\r\r"
)
MESSAGES = [
    Message("log", '{"a":\n1}'),
    Message("message", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
    Message("message", ""),
    Message("job", " x"),
]


def decoded(pieces: list[bytes]) -> list[Message]:
    decoder = Decoder()
    return [message for piece in pieces for message in decoder.feed(piece)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    """All line ends, comments, a byte order mark, cuts within a character: the messages are the same."""
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:stop] for start, stop in pairwise(edges)]
    # A lone CR at the very end waits for what follows.
    assert decoded([*pieces, b":\n"]) == MESSAGES


def test_a_message_that_breaks_off_is_none() -> None:
    """Without the empty line nothing is told."""
    assert decoded([b"event: log\ndata: 1\n"]) == []


@pytest.mark.parametrize("piece", [b"x" * 50, b"data: 34567890\n" * 5])
def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    """Neither one endless line nor endless lines fill the memory."""
    monkeypatch.setattr(sse, "LONGEST_CHARACTERS", 30)
    with pytest.raises(UnexpectedAnswerError):
        decoded([piece])
