from __future__ import annotations

import pickle

import pytest

from pytest_ultrapar.store.redact import Redactor

SECRET = 'sk-a/b+c"ä~0123456789'


def test_redactor_ignores_short_values():
    assert Redactor(["short", "", "1234567"]).text("short 1234567") == "short 1234567"
    assert Redactor(["12345678"]).text("short 12345678") == "short ***"


def test_redactor_hides_its_secrets_and_cannot_be_pickled():
    redactor = Redactor([SECRET])
    assert SECRET not in repr(redactor)
    with pytest.raises(TypeError, match="cannot leave its process"):
        pickle.dumps(redactor)
