"""Server-sent events, cut into pieces at any byte."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.server_sent_events import EventReader

STREAM = (
    b"\xef\xbb\xbf: a comment\n"
    b"data: one\n\n"
    b"event: message\r\ndata:two\r\nid: 7\r\n\r\n"
    b": keep-alive\n\n"
    b"data: three\rdata:  and more\r\r: mixed\n"
    b"data\n\n"
    b"retry: 5\n\n"
    b"database: no\n\n"
    b"data: \xff\xfe\n\n"
    b"data: without an end"
)
EVENTS = [b"one", b"two", b"three\n and more", b"", b"\xff\xfe", b"without an end"]


def read(*pieces: bytes) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.end()


def test_events_are_read_as_in_the_standard():
    assert read(STREAM) == EVENTS


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_do_not_depend_on_the_cuts(cuts):
    ends = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(ends))) == EVENTS


def test_events_are_the_same_byte_by_byte_and_in_any_two_pieces():
    assert all(read(STREAM[:at], STREAM[at:]) == EVENTS for at in range(len(STREAM)))
    assert read(*(bytes([byte]) for byte in STREAM)) == EVENTS


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_can_be_read(pieces):
    assert all(b"\r" not in event for event in read(*pieces))


def test_stream_without_data_has_no_events():
    assert read(b"", b":\n\n", b"\n\n\n", b"event: ping\n\n") == []
