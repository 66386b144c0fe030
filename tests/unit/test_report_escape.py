from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.report.text import harmless, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\x7f\x00", r"a\x0db\x7f\x00"),
        ("abc\u202edcb\u2069", r"abc\u202edcb\u2069"),
        ("lone \ud800", r"lone \ud800"),
        ("line\u2028break", r"line\u2028break"),
        (
            "tab\tand\nline feed stay, so do \\ ä 語 🙂",
            "tab\tand\nline feed stay, so do \\ ä 語 🙂",
        ),
    ],
)
def test_visible_shows_what_could_steer_a_terminal(text, shown):
    assert visible(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_visible_leaves_no_control_and_no_bidi_character(text):
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs"} and c not in "\t\n"]
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not [c for c in shown if unicodedata.bidirectional(c) in bidi]
    shown.encode("utf-8")
    assert visible(shown) == shown


def test_visible_cuts_each_line_and_counts_what_is_gone():
    assert visible("abcdef\nab", max_line=4) == "abcd[+2 characters]\nab"
    assert visible("\x1bab", max_line=4) == r"\x1b[+2 characters]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m \x1b[m \x1b[39;49;00m", "\x1b[31mred\x1b[0m \x1b[m \x1b[39;49;00m"),
        ("\x1b[1;38;2;10;20;30m", "\x1b[1;38;2;10;20;30m"),
        ("\x1b[8mhidden", r"\x1b[8mhidden"),
        ("\x1b[1;8m", r"\x1b[1;8m"),
        ("\x1b[2J\x1b]0;title\x07\x1b[?1m\x1b[1", r"\x1b[2J\x1b]0;title\x07\x1b[?1m\x1b[1"),
        ("\x1b[08mhidden", r"\x1b[08mhidden"),
        ("\x1b[;008m\x1b[0;08m", r"\x1b[;008m\x1b[0;08m"),
        ("\x1b[264m\x1b[65544m", r"\x1b[264m\x1b[65544m"),
        ("\x1b[8:0m\x1b[38:5:1m", r"\x1b[8:0m\x1b[38:5:1m"),
        ("\x1b[31 m\x1b[\x008m", r"\x1b[31 m\x1b[\x008m"),
        ("\x1b[0031m\x1b[;1m\x1b[28m", "\x1b[0031m\x1b[;1m\x1b[28m"),
        ("one\r\ntwo\rthree", "one\r\ntwo\\x0dthree"),
        ("abc\u202edcb\x00", r"abc\u202edcb\x00"),
    ],
)
def test_harmless_lets_colours_stand(text, shown):
    assert harmless(text) == shown


def parameters(sequence: str) -> list[int]:
    """The numbers of a control sequence as ECMA-48 reads them."""
    return [int(number or 0) for number in sequence.removeprefix("\x1b[")[:-1].split(";")]


@given(st.text("\x1b[0123456789;:<?m 8", max_size=12).map("\x1b[".__add__))
def test_harmless_lets_no_sequence_stand_that_hides_text(text):
    left = [piece for piece in re.split(r"(\x1b.*?m)", harmless(text)) if "\x1b" in piece]
    for sequence in left:
        assert re.fullmatch(r"\x1b\[[0-9;]*m", sequence)
        assert all(number <= 255 and number != 8 for number in parameters(sequence))


@given(st.lists(st.integers(0, 107).filter(lambda n: n != 8), max_size=8))
def test_harmless_lets_every_other_sequence_stand(numbers):
    text = f"\x1b[{';'.join(map(str, numbers))}m"
    assert harmless(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_harmless_is_visible_where_there_is_no_colour(text):
    plain = text.replace("\x1b", "").replace("\r", "")
    assert harmless(plain) == visible(plain)
