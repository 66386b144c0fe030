"""Releases of pytest and xdist: a run relies on internals of those that are tested alone."""

from __future__ import annotations

import tomllib
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
