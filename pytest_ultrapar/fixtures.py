"""The fixtures that suites use: `llm`, `model`, `case`, `grade`."""

from __future__ import annotations

from typing import NoReturn

import pytest

from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.grading import Grader
from pytest_ultrapar.session.options import NEEDED, is_active


class _OutOfReach:
    """Takes the place of `llm` and `case` in a test: only its prefetched function can use them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(
            f"{self._name!r} can be used only in the prefetched function; "
            "a test gets the value that this function returned"
        )


def _llm(model: str) -> object:
    """The client for async tests and prefetched functions: `await llm.chat("...") -> Reply`."""
    return _OutOfReach("llm")


# With this attribute, the fixture can be distinguished from a suite's own fixture of the same name.
_llm.__ultrapar__ = "llm"  # type: ignore[attr-defined]
llm = pytest.fixture(name="llm")(_llm)


def _model(request: pytest.FixtureRequest) -> str:
    """The name of the case's model. Each selected model has its own cases (--ultrapar-model)."""
    param = getattr(request, "param", None)
    if not isinstance(param, str):
        msg = f"the fixture 'model' needs {NEEDED}"
        if is_active(request.config):
            msg = (
                "the fixtures 'llm' and 'model' have no value in a test without a prefetched "
                "fixture. Name one as an argument of the test or its fixtures instead of calling "
                "request.getfixturevalue(). The prefetched function sends the requests"
            )
        from pytest_ultrapar.session.suite_faults import suite_faults  # noqa: PLC0415 - for faults only

        pytest.fail((suite_faults(request.node, ()) or [msg])[0], pytrace=False)
    return param


_model.__ultrapar__ = "model"  # type: ignore[attr-defined]
model = pytest.fixture(name="model")(_model)


@pytest.fixture
def case() -> object:
    """The case, for prefetched functions: its id, seed, repetition, parameters and marks."""
    return _OutOfReach("case")


def _grade() -> Grader:
    """Record a measurement, as in `grade(True, steps=3)` or `grade(False, "why")`.

    The call never fails the test.
    """
    return Grader(prefetch.state)


_grade.__ultrapar__ = "grade"  # type: ignore[attr-defined]
grade = pytest.fixture(name="grade")(_grade)


@pytest.fixture
def ultrapar_repeat(request: pytest.FixtureRequest) -> int:
    """The number of this repetition of the case, counted from 0 (see --ultrapar-repeats)."""
    param = getattr(request, "param", 0)
    return param if isinstance(param, int) else 0
