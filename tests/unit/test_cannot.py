"""Errors of the operating system as sentences."""

from __future__ import annotations

import os

import pytest

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.system.files import cannot, temporary_for


def test_file_is_named_if_the_sentence_does_not_name_it(tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(ResultsError) as named, cannot(f"read {missing}, which counts"):
        missing.read_bytes()
    with pytest.raises(ResultsError) as unnamed, cannot("read it"):
        missing.read_bytes()
    why = "No such file or directory"
    assert str(named.value) == f"cannot read {missing}, which counts: {why}"
    assert str(unnamed.value) == f"cannot read it: {missing}: {why}"


def test_caller_sets_the_option_the_advice_and_the_error_class():
    said = cannot("write", "; free some room", option="--out", error=ConfigError)
    with pytest.raises(ConfigError) as refused, said:
        raise OSError(28, os.strerror(28))
    assert str(refused.value) == "--out: cannot write: No space left on device; free some room"
    why = "of a library, without a number"
    with pytest.raises(ResultsError, match=f"^cannot write: {why}$"), cannot("write"):
        raise OSError(why)


def test_temporary_file_and_descriptor_are_not_named(tmp_path):
    folder = tmp_path / "page.html"
    folder.mkdir()
    with pytest.raises(ResultsError) as written, cannot(f"write {folder}"):
        temporary_for(folder).replace(folder / "nowhere" / "else")
    with pytest.raises(ResultsError) as unnumbered, cannot("read it"):
        raise OSError(21, os.strerror(21), 3)
    assert str(written.value) == f"cannot write {folder}: No such file or directory"
    assert str(unnumbered.value) == "cannot read it: Is a directory"
