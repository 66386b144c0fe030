from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.text import harmless, shortened, visible
from pytest_ultrapar.session.options import usage_errors


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
def test_visible_escapes_terminal_sequences(text, shown):
    assert visible(text) == shown


def test_shortened_text_counts_the_removed_characters():
    assert shortened("abc\x1bef", 4) == r"abc\x1b[+2 characters]"
    assert shortened("abcd", 4) == "abcd"


@given(st.text("\x1b\x9b[0123456789;:<?m 8\r\n", max_size=20))
def test_harmless_removes_all_terminal_sequences(text):
    left = harmless(text).replace("\r\n", "")
    assert not set(left) & {"\x1b", "\x9b", "\r"}
    assert harmless(left) == left


def test_error_that_quotes_foreign_text_cannot_control_the_terminal():
    error = ConfigError("pool \x1b[2J.toml: there is no such file")
    with pytest.raises(pytest.UsageError) as refused, usage_errors():
        raise error
    assert str(refused.value) == r"pool \x1b[2J.toml: there is no such file"
