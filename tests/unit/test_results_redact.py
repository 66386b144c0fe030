from __future__ import annotations

import base64
import json
import pickle
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.store.redact import Redactor

SECRET = 'sk-a/b+c"ä~0123456789'


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.b64encode(f":{SECRET}\n".encode()).decode(),
    ],
)
def test_redactor_takes_every_form_out(shown):
    redactor = Redactor([SECRET, "other-secret"])
    text = redactor.text(f"before {shown} after")
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert "***" in text
    for piece in (SECRET, quote(SECRET, safe=""), json.dumps(SECRET)[1:-1], shown):
        assert piece not in text
    assert redactor.bytes(f"before {shown} after".encode()) == text.encode()


def test_redactor_returns_the_same_object_when_nothing_matches():
    redactor = Redactor([SECRET])
    text, data = "nothing here " * 10, b"nothing here " * 10
    assert redactor.text(text) is text
    assert redactor.bytes(data) is data


def test_redactor_leaves_short_values_alone():
    assert Redactor(["short", "", "1234567"]).text("short 1234567") == "short 1234567"
    assert Redactor(["12345678"]).text("short 12345678") == "short ***"


def test_redactor_takes_a_secret_that_holds_another_one_whole():
    assert Redactor(["abcdefgh", "abcdefgh-ijkl"]).text("x abcdefgh-ijkl y") == "x *** y"


def test_redactor_shows_and_ships_nothing():
    redactor = Redactor([SECRET])
    assert SECRET not in repr(redactor)
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(redactor)


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_redactor_leaves_no_secret_in_any_text(secret, before, after):
    redactor = Redactor([secret])
    cleaned = redactor.text(before + secret + after)
    assert secret not in cleaned or secret in "***" * 20
    assert "***" in cleaned
