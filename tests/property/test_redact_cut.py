"""No part of a secret is shown where a text was cut, at any place and by any program."""

from __future__ import annotations

import json

import pytest
from _pytest._io.saferepr import saferepr
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.engine.captured_output import EpisodeOutput
from pytest_ultrapar.store.redact import Redactor
from tests.examples import examples

KEY = "sk-Canary7Qz0echo_Xy77Ab-12_zK9"
REDACTOR = Redactor([KEY])
SHOWN = 300
LONGEST_PIECE = 7
"""Characters of the key that may be shown in a row: fewer than the shortest secret has."""
QUICK = examples(150)
FILLER = st.sampled_from(["x", " ", "\n", "\t", "\u200b", "\\n", "\\", "é", "\x1b[31m", '"', "🙂"])


def longest_piece(shown: str) -> int:
    """The most characters of the key in a row that a person sees in a text."""
    seen = "".join(char for char in shown if char.isprintable() and char != " ").lower()
    key = KEY.lower()
    lengths = range(len(key), 0, -1)
    return next(
        (n for n in lengths if any(key[i : i + n] in seen for i in range(len(key) - n + 1))), 0
    )


def said(status: int, body: bytes) -> str:
    """The text of a failure that a run stores and shows."""
    return REDACTOR.short(classify_status(status, body, None).message, SHOWN)


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 280 + KEY.encode(),
        b" " * (4096 - len(KEY) + 1) + KEY.encode(),
        b" " * (16_384 - len(KEY) + 1) + KEY.encode(),
        b" " * (64 * 1024 - len(KEY) + 1) + KEY.encode(),
        "\u200b".encode() * (64 * 1024 - len(KEY) + 1) + KEY.encode(),
        b"\n".join([b" " * 70_000, *(bytes([one]) + b" " * 9_000 for one in KEY.encode())]),
        json.dumps({"error": {"message": "x" * 250 + KEY}}).encode(),
        b"\xff" * 270 + KEY.encode(),
        "é".encode() * 290 + KEY.encode(),
        f"before {KEY[:6]}\u200b{KEY[6:]} after".encode(),
        json.dumps(f"before {KEY[:6]}\u200b{KEY[6:]} after").encode(),
        json.dumps(f"before {KEY[:12]}\n{KEY[12:]} after").encode(),
        f"before {KEY[:15]} {KEY[15:]} after".encode(),
        " ".join(KEY).encode(),
        KEY.upper().encode(),
        KEY.lower().encode(),
        f"Incorrect API key provided: {KEY[:12]}.".encode(),
        f"Incorrect API key provided: {KEY[:9]}...{KEY[-8:]}.".encode(),
        f"the key that ends with {KEY[-14:]} has expired".encode(),
        f"C:\\{KEY}".encode(),
        KEY.encode().hex().upper().encode()[:30],
    ],
)
def test_no_hostile_body_shows_the_key(body):
    for status in (400, 401, 500):
        assert longest_piece(said(status, body)) <= LONGEST_PIECE


@QUICK
@given(
    before=st.lists(st.tuples(FILLER, st.integers(0, 400)), max_size=4),
    after=st.text(max_size=20),
    key=st.builds(
        lambda at, gap, change: change(KEY[:at] + gap + KEY[at:]),
        st.integers(0, len(KEY)),
        st.sampled_from(["", " ", "\n", "\u200b", "\r\n  ", "\xad"]),
        st.sampled_from([str, str.upper, str.lower]),
    ),
    most=st.integers(1, 600),
)
def test_message_shows_no_piece_of_a_key_when_cut_anywhere(before, after, key, most):
    text = "".join(one * n for one, n in before) + key + after
    assert longest_piece(REDACTOR.short(text, most)) <= LONGEST_PIECE


@examples(40)
@given(
    filler=st.sampled_from([" ", "x", "\u200b", "\n", "é", "🙂"]),
    largest=st.sampled_from([300, 4096, 16_384, 65_536, 262_144]),
    inside=st.integers(0, len(KEY) + 4),
)
@example(filler=" ", largest=65_536, inside=len(KEY) - 1)
def test_body_shows_no_piece_of_a_key_at_any_end_of_the_part_that_is_read(filler, largest, inside):
    n_bytes = len(filler.encode())
    body = (filler * ((largest - inside) // n_bytes) + KEY).encode()
    assert longest_piece(said(500, body)) <= LONGEST_PIECE
    assert longest_piece(said(401, body + b" " * 300_000)) <= LONGEST_PIECE


@examples(40)
@given(
    filler=st.sampled_from([" ", "x", "\n"]), inside=st.integers(0, 40), pieces=st.integers(1, 4)
)
def test_output_of_an_episode_contains_no_beginning_of_a_key(filler, inside, pieces):
    output = EpisodeOutput()
    text = filler * (64 * 1024 - inside) + KEY + filler
    step = len(text) // pieces + 1
    for at in range(0, len(text), step):
        output.add_print(text[at : at + step])
        output.add_log(text[at : at + step])
    assert longest_piece(REDACTOR.text(output.stdout)) <= LONGEST_PIECE
    assert longest_piece(REDACTOR.text(output.log)) <= LONGEST_PIECE


@given(n=st.integers(0, len(KEY)))
def test_piece_cut_by_a_server_is_masked_from_twelve_characters_on(n):
    left, right = REDACTOR.text(f"<{KEY[:n]}>"), REDACTOR.text(f"<{KEY[len(KEY) - n :]}>")
    assert (left == "<***>") == (n >= 12)
    assert (right == "<***>") == (n >= 12)
    assert (REDACTOR.text(f"{KEY[:n]}...") == "***...") == (n >= 8)


@pytest.mark.parametrize(
    "key", [r"sk-Can\ary7Qz\\0echo_\Xy77Ab", "sk-Can'ary\"7Qz\\'0echo_\"Xy77Ab"]
)
@given(
    around=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    most=st.integers(20, 70),
    times=st.integers(1, 3),
)
def test_no_end_of_an_escaped_key_is_left_next_to_pytests_ellipsis(key, around, most, times):
    text = "x" * around[0] + key + "y" * around[1]
    for _ in range(times - 1):
        text = repr(text)[1:-1]
    shown = Redactor([key]).text(saferepr(text, most))
    for _ in range(times):
        shown = shown.replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")
    pieces = [key[at : at + LONGEST_PIECE + 1] for at in (0, len(key) - LONGEST_PIECE - 1)]
    assert not [piece for piece in pieces if piece in shown]


def test_everyday_text_stays_as_it_is():
    text = "A qwen2.5-72b answered 'sk-' and ... C:\\new\\table, **bold** 0123456789abcdef\n" * 40
    assert REDACTOR.text(text) is text
