"""Which cases depend on each other, as a test's mark says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_ultrapar.records import Case

CLUSTER = "cluster"
"""Of the mark `ultrapar`: the parameters whose common values make cases of a repetition depend."""


def cluster_names(item: pytest.Item) -> tuple[str, ...] | None:
    """The parameters that an item's closest mark with `cluster` names; None where none does."""
    given = (mark.kwargs.get(CLUSTER) for mark in item.iter_markers("ultrapar"))
    names = next((each for each in given if each is not None), None)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        return None  # `mark_faults` says so where it is wrong
    return tuple(names)


def cluster_fault(case: Case, names: tuple[str, ...]) -> str | None:
    """What is wrong with a mark's names; None if each is a parameter of the case."""
    for name in names:
        if name not in case.params:
            own = ", ".join(case.params)
            allowed = f"its parameters are {own}" if own else "it has no parameters"
            return f"{case.test}: mark ultrapar({CLUSTER}=...) names {name!r}; {allowed}"
    return None


def cluster_of(case: Case, names: tuple[str, ...]) -> str:
    """The cluster of a case that has all these parameters; the same in every test of a run."""
    shared = {name: case.params[name] for name in sorted(names)}
    return json.dumps({**shared, "repeat": case.repeat}, ensure_ascii=False)
