"""Each API of the registry has all members of an API and is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.apis.registry import Api, Reader, api_named, api_names, reader_named

DOCUMENTS = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
NAMES = [*Api.__annotations__, *vars(Api), *vars(Reader)]
WANTED = [name for name in NAMES if not name.startswith("_")]


@pytest.mark.parametrize("name", api_names())
def test_api_has_every_required_member(name):
    assert WANTED
    assert [wanted for wanted in WANTED if not hasattr(api_named(name), wanted)] == []


@pytest.mark.parametrize("name", api_names())
def test_each_served_path_has_a_reader_and_a_url(name):
    api = api_named(name)
    for path, reader in api.serves.items():
        assert reader_named(reader).stream().done is False
        url = api.resource_url("http://host/v1", "its name", "v", path)
        assert url.startswith("http://host/")
        assert "{" not in url


@pytest.mark.parametrize("name", api_names())
def test_api_is_documented(name):
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    assert any(f'api = "{name}"' in text for text in texts)
