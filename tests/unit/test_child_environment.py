"""What a process of ours finds in its environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pytest_ultrapar
from pytest_ultrapar.system.child import _environment


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": "/elsewhere"}])
def test_the_package_is_found_where_its_parent_found_it_and_no_part_of_it_by_itself(given):
    *others, root = _environment(given)["PYTHONPATH"].split(os.pathsep)
    assert others == [*given.values()]
    assert Path(root, "pytest_ultrapar") == Path(pytest_ultrapar.__file__).parent
