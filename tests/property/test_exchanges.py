"""The requests and answers of an episode, with any content, are unpacked unchanged."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.exchanges import (
    INLINE_BYTES,
    LARGE_BYTES,
    PART,
    ExchangeLog,
    body_with_part_names,
    canonical,
    part_name,
    said,
    skeletons,
    without_model,
)
from pytest_ultrapar.records import Exchange
from tests.examples import examples

texts = st.text(max_size=30)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
messages = st.lists(st.fixed_dictionaries({"role": texts, "content": plain}), max_size=5)


@st.composite
def conversations(draw):
    """Bodies of an episode: a list that grows, is cut or replaced, next to fields that change."""
    bodies = []
    so_far = draw(messages)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["more", "fewer", "other", "same"]))
        if kind == "more":
            so_far = so_far + draw(messages)
        elif kind == "fewer":
            so_far = so_far[: draw(st.integers(0, len(so_far)))]
        elif kind == "other":
            so_far = draw(messages)
        body = {"messages": so_far, **draw(st.dictionaries(texts, plain, max_size=2))}
        names = draw(st.permutations(list(body)))
        style = draw(st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}]))
        bodies.append(json.dumps({name: body[name] for name in names}, **style).encode())
    return bodies


class Parts(dict):
    def keep(self, content: bytes) -> str:
        self[part_name(content)] = content
        return part_name(content)


def noted(exchanges, redact=lambda data: data):
    """The journal's data of these, after a round trip through JSON, and their parts."""
    parts = Parts()
    log = ExchangeLog(parts.keep, redact)
    for turn, one in enumerate(exchanges):
        log.add(turn, api="openai", path="/chat/completions", status=200, **one)
    text = msgspec.json.encode(log.noted)
    return msgspec.json.decode(text, type=list[Exchange]), parts


def round_trip(exchanges):
    kept, parts = noted(exchanges)
    return [(one.sent, one.came) for one in said(kept, parts.__getitem__)]


@examples(300)
@given(conversations(), plain)
def test_conversation_of_any_json_is_unpacked_byte_for_byte(bodies, answer):
    came = msgspec.json.encode(answer)
    exchanges = [{"sent": body, "came": came} for body in bodies]
    assert round_trip(exchanges) == [(body, came) for body in bodies]


@examples(100)
@given(st.lists(st.binary(max_size=60), max_size=5), st.binary(max_size=60))
def test_bodies_that_are_not_text_are_unpacked_too(bodies, answer):
    exchanges = [{"sent": body, "came": answer} for body in bodies]
    assert round_trip(exchanges) == [(body, answer) for body in bodies]


@examples(60)
@given(
    conversations(), st.lists(st.sampled_from([LARGE_BYTES - 1, LARGE_BYTES, 50_000]), max_size=3)
)
def test_long_strings_are_parts_and_are_restored(bodies, lengths):
    exchanges = []
    for body in bodies:
        longer = json.loads(body)
        longer["images"] = [f'data:"{length}\\' + "é" * length for length in lengths]
        styles = ({}, {"ensure_ascii": False})
        exchanges += [{"sent": json.dumps(longer, **style).encode()} for style in styles]
    assert round_trip(exchanges) == [(one["sent"], b"") for one in exchanges]


def grown(n_turns, *, model="m", size=1_000):
    rng = random.Random(1)
    said_so_far = []
    bodies = []
    for _ in range(n_turns):
        text = "".join(rng.choices("abcdefgh ", k=size))
        said_so_far.append({"role": "user", "content": text})
        bodies.append(
            msgspec.json.encode({"model": model, "messages": said_so_far, "temperature": 0.5})
        )
    return bodies


def test_one_request_is_stored_as_its_bytes():
    (body,) = grown(1)
    kept, _ = noted([{"sent": body}])
    assert kept == [Exchange(0, "openai", "/chat/completions", 200, body.decode())]


def test_conversation_that_grows_is_stored_once():
    bodies = grown(20)
    kept, _ = noted([{"sent": body} for body in bodies])
    assert sum(len(one.sent) for one in kept) < 1.1 * len(bodies[-1])


def test_conversations_that_alternate_are_each_stored_once():
    subject, judge = grown(10), grown(10, model="judge", size=900)
    bodies = [body for pair in zip(subject, judge, strict=True) for body in pair]
    kept, _ = noted([{"sent": body} for body in bodies])
    assert sum(len(one.sent) for one in kept) < 1.1 * (len(subject[-1]) + len(judge[-1]))
    assert round_trip([{"sent": body} for body in bodies]) == [(body, b"") for body in bodies]


def test_lane_s_name_of_the_model_is_not_stored():
    body = grown(1, model='d"1')[0]
    assert json.loads(without_model(body, 'd"1')) == {
        name: value for name, value in json.loads(body).items() if name != "model"
    }
    assert without_model(body, "d2") == body


def test_image_in_every_turn_is_one_part():
    image = "data:image/png;base64," + "iVBORw0KGgo" * 5_000
    part = {"type": "image_url", "image_url": {"url": image}}
    bodies = [
        msgspec.json.encode(
            {"messages": [{"role": "user", "content": [part, {"type": "text", "text": str(n)}]}]}
        )
        for n in range(5)
    ]
    kept, parts = noted([{"sent": body} for body in bodies])
    assert parts == {part_name(image.encode()): image.encode()}
    assert sum(len(one.sent) for one in kept) < 400
    assert [one.sent for one in said(kept, parts.__getitem__)] == bodies


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 2_000_000 + b"{}]",
        json.dumps({"content": "x" * 16_000_000}).encode(),
        b"\xff" * 5_000_000,
        json.dumps({"content": "\0part:" + "0" * 64}).encode(),
        b'"' * 5_000_000,
        b"\\" * 5_000_000,
    ],
)
def test_hostile_body_makes_no_long_record_and_is_restored(body):
    kept, parts = noted([{"sent": body, "came": body}])
    assert len(msgspec.json.encode(kept)) < 4 * INLINE_BYTES
    (found,) = said(kept, parts.__getitem__)
    assert (found.sent, found.came) == (body, body)


def test_stream_is_stored_compactly_and_restored():
    event = b'data: {"id":"c-1","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'
    came = b"".join(event % n for n in range(500)) + b"data: [DONE]\n\n"
    kept, parts = noted([{"sent": b"{}", "came": came, "whole": b"{}"}])
    assert len(kept[0].came) < len(came) / 5
    (found,) = said(kept, parts.__getitem__)
    assert (found.is_stream, found.came) == (True, came)


def test_stream_that_spells_a_secret_is_stored_whole():
    def redact(data: bytes) -> bytes:
        return data.replace(b"sk-canary", b"***")

    events = b'data: {"delta":"sk-ca"}\n\ndata: {"delta":"nary"}\n\n'
    kept, _ = noted([{"sent": b"{}", "came": events, "whole": b'{"text":"sk-canary"}'}], redact)
    assert (kept[0].is_stream, kept[0].came) == (False, '{"text":"sk-canary"}')


def test_bodies_are_redacted_as_a_whole():
    bodies = [b'{"a":"my secr"}', b'{"a":"my secret"}', b'{"a":"my secret","b":1}']
    kept, _ = noted([{"sent": body, "came": b'"secret"'} for body in bodies])
    log = ExchangeLog(str, lambda data: data)
    log.changed(kept, lambda text: text.replace("secret", "***"))
    changed = [b'{"a":"my secr"}', b'{"a":"my ***"}', b'{"a":"my ***","b":1}']
    assert skeletons(log.noted) == changed
    assert {one.came for one in log.noted} == {'"***"'}


def test_no_stored_piece_begins_or_ends_within_a_word():
    one, other = b'{"a":"key sk-1234567AAAA to","n":1}', b'{"a":"key sk-1234567BBBB to","n":1}'
    kept, _ = noted([{"sent": one}, {"sent": other}])
    assert kept[1].sent == "sk-1234567BBBB"


def test_reference_to_a_missing_body_is_refused():
    with pytest.raises(ValueError, match="an exchange has an invalid reference to number 3 of 0"):
        skeletons([Exchange(0, "openai", "/x", 200, "", base=3)])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        said([Exchange(0, "o", "/x", 200, "", came="AAAA", is_stream=True)], {}.__getitem__)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"model": "a", "messages": [], "stream": True}, {"messages": [], "model": "b"}),
        ({"n": 1, "m": {"b": 1, "a": 2}}, {"m": {"a": 2, "b": 1}, "n": 1, "stream_options": {}}),
    ],
)
def test_equal_requests_have_one_canonical_form(one, other):
    forms = {canonical(json.dumps(each, indent=1).encode()) for each in (one, other)}
    assert len(forms) == 1
    assert canonical(json.dumps({**one, "temperature": 1}).encode()) not in forms


def test_canonical_form_of_text_that_is_not_json_is_itself():
    assert canonical(b"--boundary\r\n") == b"--boundary\r\n"
    assert canonical(b"[" * 100_000) == b"[" * 100_000
    assert PART.encode() not in canonical(b'{"a":1}')


@pytest.mark.parametrize("end", [b"", b"\\", b'\\"'])
def test_unclosed_string_is_scanned_once(end):
    # To scan it from each of its quotes would take minutes.
    body = b'"' + b'\\"  ' * 99_990 + b" " * 2**24 + end
    kept: dict[str, bytes] = {}

    def keep(content: bytes) -> str:
        kept["x" * 64] = content
        return "0" * 64

    assert len(body_with_part_names(body, keep) or b"") < 1000
    assert kept == {"x" * 64: body[1:-1] if end == b"\\" else body[1:]}
