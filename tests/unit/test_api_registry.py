"""Each API of the registry has what is asked of one, and its page in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.apis.registry import Api, api_named, api_names

DOCUMENTS = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
WANTED = [name for name in vars(Api) if not name.startswith("_")]


@pytest.mark.parametrize("name", api_names())
def test_api_has_all_that_is_asked_of_one(name):
    assert WANTED
    assert [wanted for wanted in WANTED if not hasattr(api_named(name), wanted)] == []


@pytest.mark.parametrize("name", api_names())
def test_api_is_documented(name):
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    assert any(f'api = "{name}"' in text for text in texts)
