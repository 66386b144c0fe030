"""What is wrong with a mark `ultrapar(...)`, in one sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.suite.clusters import CLUSTER
from pytest_ultrapar.suite.selection import ARGUMENT
from pytest_ultrapar.suite.taken import TAKEN_FROM

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_ARGUMENTS = (CLUSTER, "expect", "models", ARGUMENT, "summary", TAKEN_FROM)
_EXPECT = ("turns", "tokens_in", "tokens_out")


def mark_faults(mark: pytest.Mark) -> Iterator[str]:
    """Faults of a mark that can be seen without its test's parameters and the pool's models.

    Each begins with the mark and says what was found and what is allowed.
    """
    strange = [*map(repr, mark.args), *sorted(mark.kwargs.keys() - set(_ARGUMENTS))]
    if strange:
        takes = " and ".join(f"{name}=..." for name in _ARGUMENTS)
        yield f"mark ultrapar(...) got {strange[0]}; it takes {takes} by name"
    for name, value in mark.kwargs.items():
        fault = _value_fault(name, value) if value is not None else None
        if fault is not None:
            yield f"mark ultrapar({name}=...){fault}"


def patterns_of(models: object) -> list[str]:
    """The patterns in a mark's `models`: one, or several in a list; none if it is neither."""
    if isinstance(models, str):
        return [models]
    return list(models) if isinstance(models, tuple | list) and _are_names(models) else []


def _value_fault(name: str, value: object) -> str | None:
    if name == "models" and not isinstance(value, str) and not _are_names(value):
        return f" must be a pattern such as 'qwen*', or a list of patterns (got {value!r})"
    if name == "summary" and not _are_names(value):
        return f" must be a list of names such as ['model', 'repeat'] (got {value!r})"
    if name == CLUSTER and not _are_names(value):
        return f" must be a list of parameters such as ['task'] (got {value!r})"
    if name == TAKEN_FROM and not isinstance(value, str):
        return f" must be the name of a suite's folder (got {value!r})"
    return _expect_fault(value) if name == "expect" else None


def _expect_fault(said: object) -> str | None:
    if not isinstance(said, dict) or not set(said) <= set(_EXPECT):
        return f" must be a dict with some of {', '.join(_EXPECT)} (got {said!r})"
    for name, value in said.items():
        least = 1 if name == "turns" else 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            return f": {name} must be a number >= {least} (got {value!r})"
    return None


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(one, str) for one in value)
