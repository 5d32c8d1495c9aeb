"""The framing of server-sent events: every legal way to write the same event gives the same event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.measure import sse


def read(*pieces: bytes):
    return [(name, data) for _, name, data in sse.events((float(i), p) for i, p in enumerate(pieces))]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "lines, found",
    [
        ([b"data: x", b""], [(None, b"x")]),
        ([b"data:x", b"", b"data: y", b""], [(None, b"x"), (None, b"y")]),
        ([b"event: message", b"data: x", b""], [("message", b"x")]),
        ([b"id: 3", b"retry: 10", b"data: x", b""], [(None, b"x")]),
        ([b": ping", b"", b": ping", b"data: x", b": ping", b""], [(None, b"x")]),
        ([b"data: {", b"data: }", b""], [(None, b"{\n}")]),
        ([b"", b"", b"", b"data: x", b"", b""], [(None, b"x")]),
        ([b"event: error", b"data: x", b""], [("error", b"x")]),
        ([b"data: x"], [(None, b"x")]),  # the last one, cut off before its blank line
        ([b"event: ping", b""], []),
        ([b'{"error": 1}', b""], [(sse.STRAY, b'{"error": 1}')]),
    ],
)
def test_every_way_to_write_an_event(end, lines, found):
    whole = end.join(lines) + end
    assert read(whole) == found
    assert read(*(whole[i : i + 1] for i in range(len(whole)))) == found


def test_an_event_is_there_as_soon_as_its_end_is():
    """A CR may be half of a CR LF and still ends the line when it comes: the clock does not wait for the next piece."""
    got = list(sse.events([(1.0, b"data: x\r\n\r"), (2.0, b"\ndata: y\r\n\r\n")]))
    assert got == [(1.0, None, b"x"), (2.0, None, b"y")]


def test_a_byte_order_mark_is_no_part_of_the_first_event():
    assert read(b"\xef\xbb\xbfdata: x\n\n") == [(None, b"x")]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_break_it(pieces):
    for _, name, data in sse.events((0.0, p) for p in pieces):
        assert name is None or isinstance(name, str)
        assert isinstance(data, bytes)
