"""Texts written to hide a secret, or to make the search for secrets slow."""

from __future__ import annotations

import base64
import time

import pytest

from pytest_ultrapar.store.redact import Redactor

SECRET = "sk-proj-AbCdEf0123456789ZyXwVu"
# Texts that begin with an escape, or repeat themselves.
ODD = ["-/+dash-slash-0123456789", "\\-\\back-slash-0123", '""""""""quoted-0123', "a" * 12]
KEYS = [SECRET, *ODD]

_UNITS = {
    "backslashes": "\\",
    "blanks": " ",
    "percent": "%",
    "percent-25": "%25",
    "25": "25",
    "percent-5c": "%5C",
    "percent-255c": "%25255C",
    "both-backslashes": "\\%5C",
    "backslash-x": "\\x",
    "backslash-n": "\\n",
    "percent-20": "%20",
    "prefix": "sk-proj-",
    "prefix-quote": 'sk-proj-"',
    "prefix-backslash": "sk-proj-\\",
    "tail": "89ZyXwVu",
    "quotes": '"',
    "escape": "\x1b",
    "escape-bracket": "\x1b[",
    "escape-digits": "\x1b[3",
    "escaped-escape": "\\x1b[3",
    "ampersand": "&amp;",
    "amp": "amp;",
    "entity": "&#0",
    "zeros": "0",
    "entity-whole": "&#115;",
    "letter-in-json": "\\u0073",
    "letter-in-json-in-url": "%5Cu0073",
    # One key contains only this letter.
    "letter": pytest.param("a", marks=pytest.mark.slow),
    "dash": "-",
    "invisible": "\u3164",
}


def _seconds(redactor: Redactor, text: str) -> float:
    start = time.thread_time()
    redactor.text(text)
    return time.thread_time() - start


@pytest.fixture(scope="module")
def warmed():
    """A redactor that has compiled the patterns of all forms of all keys, and a text for it."""
    redactor = Redactor(KEYS)
    beginning = "sk-proj- "
    for key in KEYS:
        shifted = (
            base64.b64encode(before + key.encode()).decode() for before in (b"", b"x", b"xy")
        )
        beginning += " ".join([key, key.encode().hex(), *shifted, ""])
    assert "***" in redactor.text(beginning)
    return redactor, beginning


@pytest.mark.parametrize("unit", _UNITS.values(), ids=_UNITS.keys())
def test_time_is_linear_in_the_text(warmed, unit):
    redactor, beginning = warmed

    def text(n: int) -> str:
        return beginning + unit * (n // len(unit)) + beginning

    # 4 is linear, 16 quadratic. Another process can slow down one try, but not all.
    ratios = (
        _seconds(redactor, text(32 * 1024)) / max(_seconds(redactor, text(8 * 1024)), 1e-6)
        for _ in range(6)
    )
    assert any(ratio <= 8 for ratio in ratios)
