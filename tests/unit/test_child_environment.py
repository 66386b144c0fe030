"""The environment of a process that the plugin starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pytest_ultrapar
from pytest_ultrapar.system.child import _environment


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": "/elsewhere"}])
def test_child_imports_the_package_from_the_same_place_as_its_parent(given):
    *others, root = _environment(given)["PYTHONPATH"].split(os.pathsep)
    assert others == [*given.values()]
    assert Path(root, "pytest_ultrapar") == Path(pytest_ultrapar.__file__).parent
