"""Which collected cases a run leaves out, as `-k` leaves out tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar import process, pytest_internals
from pytest_ultrapar.suite.collection import params_of, prefetched_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

    import pytest

    from pytest_ultrapar.records import Scalar
    from pytest_ultrapar.settings import Options

ARGUMENT = "repeats_over"
"""Of the mark `ultrapar`: the parameter that M of `--ultrapar-repeats NxM` counts."""

FirstValues = dict[tuple["Path", str], set["Scalar"]]
"""By test file and parameter, the first distinct values in the order of collection."""


def first_values(config: pytest.Config, items: Sequence[pytest.Item]) -> FirstValues:
    """The first M values of the parameter that each suite counts; empty without `NxM`.

    Asked before any plugin selects or sorts items, so that `-k` picks from what runs without it.
    """
    options, _ = process.settings(config)
    found: FirstValues = {}
    if options.repeats_first is None:
        return found
    named: dict[int, object] = {}
    for item in items:
        name = _looked_up(named, item)
        if not isinstance(name, str):
            continue
        if _parameters(item).get(name, pytest_internals.NO_VALUE) is not pytest_internals.NO_VALUE:
            values = found.setdefault((item.path, name), set())
            if len(values) < options.repeats_first:
                values.add(params_of(item).get(name))
    return found


def deselect(config: pytest.Config, items: list[pytest.Item], first: FirstValues) -> None:
    """Leave out the cases that this run does not ask for; note what is wrong with marks.

    Left out are cases of models that `--ultrapar-model` does not select, cases whose counted
    parameter has none of its first values, and the one item, which it would skip, that pytest makes
    of a test when one of its parameters has no value at all.
    """
    options, pool = process.settings(config)
    others = frozenset(pool.models).difference(process.models(config))
    named: dict[int, object] = {}
    is_case: dict[int, bool] = {}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        test = pytest_internals.test_identity(item)
        if test not in is_case:
            is_case[test] = bool(prefetched_of(item))
            fault = _fault(item, _looked_up(named, item), options) if is_case[test] else None
            if fault is not None:
                config.stash.setdefault(process.mark_faults_key, []).append(fault)
        unwanted = is_case[test] and _is_unwanted(item, others, _looked_up(named, item), first)
        (left_out if unwanted else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _is_unwanted(
    item: pytest.Item, others: Container[object], counted: object, first: FirstValues
) -> bool:
    parameters = _parameters(item)
    # By identity: a parameter's value may be anything, also what cannot be compared or hashed.
    if any(value is pytest_internals.NO_VALUE for value in parameters.values()):
        return True
    model = parameters.get("model")
    if isinstance(model, str) and model in others:
        return True
    values = first.get((item.path, counted)) if isinstance(counted, str) else None
    return values is not None and params_of(item).get(str(counted)) not in values


def _parameters(item: pytest.Item) -> Mapping[Any, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec is not None else {}


def _looked_up(named: dict[int, object], item: pytest.Item) -> object:
    """What the mark names as counted, None if nothing; looked up once per test."""
    test = pytest_internals.test_identity(item)
    if test not in named:
        given = (mark.kwargs.get(ARGUMENT) for mark in item.iter_markers("ultrapar"))
        named[test] = next((name for name in given if name is not None), None)
    return named[test]


def _fault(item: pytest.Item, counted: object, options: Options) -> str | None:
    where = item.nodeid.split("[")[0]
    own = list(params_of(item))
    allowed = f"its parameters are {', '.join(own)}" if own else "it has no parameters"
    if counted is not None and counted not in own:
        return f"{where}: mark ultrapar({ARGUMENT}={counted!r}) names no parameter; {allowed}"
    if counted is None and options.repeats_first is not None:
        origin = next(one.origin for one in options.effective if one.name == "repeats")
        asked = f"{options.repeats}x{options.repeats_first}"
        return (
            f"{where}: {asked} ({origin}) takes the first {options.repeats_first} values of a "
            f"parameter, but the suite does not say of which; mark it with "
            f'pytest.mark.ultrapar({ARGUMENT}="..."), where {allowed}, or ask for '
            f"{options.repeats}"
        )
    return None
