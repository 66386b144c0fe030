"""Parametrisation of cases over models and repetitions."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_ultrapar import process, pytest_internals
from pytest_ultrapar.collection import REPEAT
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.prefetched import ATTRIBUTE

if TYPE_CHECKING:
    import pytest


def parametrize_models(metafunc: pytest.Metafunc) -> bool:
    """Give a test that has a prefetched fixture its models; returns whether it has one.

    Raises:
        ConfigError: The test's mark selects no model.
    """
    names = list(metafunc.fixturenames)
    functions = [pytest_internals.fixture_function(metafunc, name) for name in names]
    if not any(hasattr(function, ATTRIBUTE) for function in functions):
        return False
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
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    _, pool = process.settings(metafunc.config)
    for pattern in listed:
        if not any(fnmatchcase(name, pattern) for name in pool.models):
            msg = (
                f"{metafunc.definition.nodeid}: mark ultrapar(models=...) names {pattern!r}, which matches no model "
                f"of {pool.path}; it has {', '.join(pool.models)}"
            )
            raise ConfigError(msg)
    return [name for name in selected if any(fnmatchcase(name, pattern) for pattern in listed)]
