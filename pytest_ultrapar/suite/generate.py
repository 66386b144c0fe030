"""Parametrisation of cases over models and repetitions."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_ultrapar import process, pytest_internals
from pytest_ultrapar.suite.collection import REPEAT
from pytest_ultrapar.suite.marks import mark_faults, patterns_of
from pytest_ultrapar.suite.prefetched import ATTRIBUTE

if TYPE_CHECKING:
    import pytest

_PATTERN_SIGNS = set("*?[")


def parametrize_models(metafunc: pytest.Metafunc) -> bool:
    """Give a test that has a prefetched fixture its models; returns whether it has one.

    What is wrong with its mark is noted: raised while tests are generated it would be a traceback
    and exit code 2.
    """
    names = list(metafunc.fixturenames)
    functions = [pytest_internals.fixture_function(metafunc, name) for name in names]
    if not any(hasattr(function, ATTRIBUTE) for function in functions):
        return False
    for mark in metafunc.definition.iter_markers("ultrapar"):
        for fault in mark_faults(mark):
            _note_fault(metafunc, fault)
    ours = pytest_internals.fixture_function(metafunc, "model")
    is_ours = "model" in names and getattr(ours, "__ultrapar__", None) == "model"
    if is_ours and not _by_hand(metafunc):
        metafunc.parametrize("model", _models(metafunc))
    return True


def parametrize_repeats(metafunc: pytest.Metafunc) -> None:
    """Give a case its repetitions.

    They are always a parameter, also when there is one: the first repetition of a case then has the
    same id in a run of one and in a run of twenty.
    """
    options, _ = process.settings(metafunc.config)
    if REPEAT not in metafunc.fixturenames:
        metafunc.fixturenames.append(REPEAT)
    numbers = range(options.repeats)
    metafunc.parametrize(REPEAT, numbers, ids=[f"r{number}" for number in numbers])


def _by_hand(metafunc: pytest.Metafunc) -> bool:
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        listed = names.split(",") if isinstance(names, str) else names
        if "model" in [name.strip() for name in listed]:
            return True
    return False


def _models(metafunc: pytest.Metafunc) -> list[str]:
    selected = process.models(metafunc.config)
    mark = metafunc.definition.get_closest_marker("ultrapar")
    patterns = mark.kwargs.get("models") if mark is not None else None
    if patterns is None:
        return list(selected)
    listed = patterns_of(patterns)
    _, pool = process.settings(metafunc.config)
    for pattern in listed:
        # A name that is not there is a slip of the pen; a family without a member in this pool is
        # a suite that has nothing to do here.
        is_name = not _PATTERN_SIGNS.intersection(pattern)
        if is_name and pattern not in pool.models:
            names = ", ".join(pool.models)
            _note_fault(
                metafunc,
                f"mark ultrapar(...) names {pattern!r}, which matches no model of {pool.path}; "
                f"it has {names}",
            )
    return [name for name in selected if any(fnmatchcase(name, one) for one in listed)]


def _note_fault(metafunc: pytest.Metafunc, what: str) -> None:
    faults = metafunc.config.stash.setdefault(process.mark_faults_key, [])
    faults.append(f"{metafunc.definition.nodeid}: {what}")
