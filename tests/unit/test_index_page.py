"""The page of a package index."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


index_page = loaded(ROOT / "hatch_build.py")


def test_page_without_an_address_names_files_and_has_no_links():
    text = index_page.for_index(README, None)
    assert "](" not in text
    assert "tutorial (`docs/tutorial.md`)" in text
    assert index_page.urls(None) == {}


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://example.org/team/it.git", "https://example.org/team/it"),
        ("https://user:canary@example.org/team/it", "https://example.org/team/it"),
        ("git@example.org:team/it.git", "https://example.org/team/it"),
        ("ssh://git@example.org/team/it.git", "https://example.org/team/it"),
        ("/srv/it", None),
        (None, None),
    ],
)
def test_address_comes_from_the_remote_origin(tmp_path, origin, address):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert index_page.address_of(tmp_path) == address
