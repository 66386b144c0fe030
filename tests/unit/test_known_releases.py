"""Releases of pytest and xdist: a run relies on internals of those that are tested alone."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pytest_ultrapar import plugin

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("project", plugin.KNOWN_TO_WORK)
def test_only_releases_that_are_tested_can_be_installed(project):
    first, *_, last = [*plugin.KNOWN_TO_WORK[project], plugin.KNOWN_TO_WORK[project][-1]]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = next(one for one in map(Requirement, known["dependencies"]) if one.name == project)
    major, minor = last.split(".")
    assert str(required.specifier) == f"<{major}.{int(minor) + 1},>={first}"


@pytest.mark.parametrize("project", plugin.KNOWN_TO_WORK)
def test_another_release_is_refused_in_one_sentence(pytestconfig, monkeypatch, project):
    monkeypatch.setattr(plugin, "_has_workers", lambda _: True)
    plugin._refuse_releases(pytestconfig)
    monkeypatch.setattr(
        plugin, "version", lambda name: "99.1.0" if name == project else version(name)
    )
    with pytest.raises(
        pytest.UsageError, match=f"internals of {project}; known to work are .*, not 99.1.0"
    ):
        plugin._refuse_releases(pytestconfig)
