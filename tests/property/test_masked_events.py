"""No cut of a stream, into pieces or into events, shows a secret to its reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.server_sent_events import EventReader, MaskedEvents
from pytest_ultrapar.store.redact import Redactor
from tests.examples import examples

KEY = "sk-Canary7Qz0echo_Xy77Ab-12_zK9"
REDACTOR = Redactor([KEY])
LONGEST_PIECE = 7
"""Characters of the key that may be shown: fewer than the shortest secret has."""
TEXT = st.text('abc \n"\\é🙂', max_size=12)


def chat(text: str, index: int = 0, end: str = "\n\n") -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None}
    data = json.dumps({"id": "c-1", "model": "m", "choices": [choice]})
    return f": a comment\ndata: {data}{end}".replace("\n\n", end).encode()


def shown(pieces: list[bytes]) -> list[bytes]:
    masked = MaskedEvents(REDACTOR.bytes)
    return [*map(masked.feed, pieces), masked.end()]


def contents(stream: bytes, index: int = 0) -> str:
    choices = [json.loads(event)["choices"][0] for event in EventReader().feed(stream)]
    return "".join(one["delta"]["content"] for one in choices if one["index"] == index)


@examples(150)
@given(
    before=TEXT,
    after=TEXT,
    end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"]),
    cut=st.tuples(st.integers(0, 40), st.integers(1, 40)),
    is_cut_off=st.booleans(),
)
def test_key_in_pieces_is_masked_and_every_event_comes_with_its_last_byte(
    before, after, end, cut, is_cut_off
):
    first, n_bytes = cut
    after = after.rstrip("\\")  # if it is half an escape, it is held back behind a secret
    stream = chat(before, end=end) + chat(before + KEY + after, end=end) + chat(after, end=end)
    if is_cut_off:  # servers forget the last empty line
        stream = stream.rstrip(b"\r\n")
    starts = [0, *range(first or n_bytes, len(stream), n_bytes)]
    pieces = [stream[at:to] for at, to in zip(starts, [*starts[1:], None], strict=True)]
    came = shown(pieces)
    assert b"".join(came) == REDACTOR.bytes(stream)
    reader, told = EventReader(), EventReader()
    for piece, seen in zip(pieces, came, strict=False):
        assert len(told.feed(seen)) == len(reader.feed(piece))


@examples(150)
@given(
    before=TEXT,
    after=st.text("abc \n", max_size=12),
    cuts=st.sets(st.integers(0, 60)),
    others=st.booleans(),
)
def test_key_in_many_events_is_masked_except_for_its_first_characters(before, after, cuts, others):
    text = before + KEY + after
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    stream = b""
    for at, to in zip([0, *ends], ends, strict=False):
        stream += chat(text[at:to]) + others * chat("z", index=1)
    pieces = [stream[at : at + 1] for at in range(len(stream))]
    left = contents(b"".join(shown(pieces)))
    head, _, rest = left.partition("***")
    assert head.startswith(before)
    assert len(head) - len(before) <= LONGEST_PIECE
    assert rest == after


@pytest.mark.parametrize(
    "event",
    [
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}',
        '{"type":"content_block_delta","index":0,"delta":{"partial_json":"%s"}}',
        '{"type":"response.output_text.delta","output_index":0,"delta":"%s","n":1}',
        '{"candidates":[{"content":{"parts":[{"text":"%s"}],"role":"model"},"index":0}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"%s"}}]}}]}',
    ],
)
def test_key_in_events_of_one_character_is_masked_with_every_api(event):
    begin, end = f"data: {event}\n\n".split("%s")
    came = shown([f"{begin}{char}{end}".encode() for char in KEY + " then"])
    left = "".join(one.decode().removeprefix(begin).removesuffix(end) for one in came)
    assert left == KEY[:LONGEST_PIECE] + "*** then"


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_event_that_comes_in_one_piece_is_passed_on_in_one(end):
    event = chat("text", end=end)
    assert shown([event, event]) == [event, event, b""]


ESCAPES = (
    r"\u{:04x} \\u{:04x} \x{:02x} %{:02X} %25{:02x} &#{}; &#x{:x}; &amp;#{}; %5Cu{:04x} %26#{};"
)


@pytest.mark.parametrize(
    "n_chars", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 9))]
)
@pytest.mark.parametrize("escape", [*ESCAPES.split(), r"\u0026#{};", r"\u0025{:02x}"])
def test_fully_escaped_key_is_masked_when_escapes_are_cut(escape, n_chars):
    escaped = "".join(escape.format(ord(char)) for char in KEY)
    text = f"{escaped} then 5 %"
    came = shown([chat(text[at : at + n_chars]) for at in range(0, len(text), n_chars)])
    head, _, rest = contents(b"".join(came)).partition("***")
    assert rest.lstrip("*") == " then 5 %"
    assert escaped.startswith(head)
    # The first character that is not shown may be cut in its escape.
    assert len(head) < len("".join(escape.format(ord(char)) for char in KEY[: LONGEST_PIECE + 1]))


def test_key_in_events_of_several_lines_is_masked():
    begin, end = 'data: {"delta":\n', "}\n\n"
    came = shown([f'{begin}data: "{char}"{end}'.encode() for char in KEY + " then"])
    left = "".join(json.loads(EventReader().feed(one)[0])["delta"] for one in came if one)
    assert left == KEY[:LONGEST_PIECE] + "*** then"


def test_events_without_a_secret_stay_as_they_are():
    stream = chat("ends like sk-Can") + chat("yon, and on ") * 400 + b"data: [DONE]\n\n"
    assert b"".join(shown([stream[at : at + 7] for at in range(0, len(stream), 7)])) == stream
