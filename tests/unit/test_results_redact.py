from __future__ import annotations

import base64
import json
import pickle
from urllib.parse import quote

import pytest

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


def test_redactor_leaves_short_values_alone():
    assert Redactor(["short", "", "1234567"]).text("short 1234567") == "short 1234567"
    assert Redactor(["12345678"]).text("short 12345678") == "short ***"


def test_redactor_shows_and_ships_nothing():
    redactor = Redactor([SECRET])
    assert SECRET not in repr(redactor)
    with pytest.raises(TypeError, match="does not leave its process"):
        pickle.dumps(redactor)
