"""The fixtures that suites use: `llm`, `model`, `case`, `grade`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

import pytest

from pytest_ultrapar.options import pool_path
from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.prefetch import Graded

if TYPE_CHECKING:
    # Every pytest run imports this module; the records bring msgspec along (25 ms).
    from collections.abc import Mapping

    from pytest_ultrapar.records import Outcome
    from pytest_ultrapar.session.prefetch import CaseState

GRADES: tuple[Outcome, ...] = ("solved", "partial", "unsolved")


@runtime_checkable
class Verdict(Protocol):
    """What `grade` accepts in one piece: anything with an outcome and scores."""

    @property
    def outcome(self) -> str:
        """`solved`, `partial` or `unsolved`."""
        ...

    @property
    def scores(self) -> Mapping[str, float]:
        """Numbers by name."""
        ...


class Grader:
    """The value of `grade`: call it once to record a measurement; it never fails the test."""

    def __init__(self, state: CaseState | None) -> None:
        self._state = state

    def __call__(
        self, verdict: bool | str | Verdict, /, *, reason: str | None = None, **scores: float
    ) -> None:
        """Record what the episode was worth.

        Args:
            verdict: `solved`, `partial` or `unsolved`; True for `solved` and False for `unsolved`;
                or an object with `outcome`, `scores` and perhaps `kind` and `reason`.
            reason: Why, in a sentence; it stands with the case wherever it is shown.
            scores: Numbers by name; True and False count as 1 and 0.

        Raises:
            TypeError: The verdict is none of these, or the reason no text.
            ValueError: Another outcome, or a score that is not a finite number.
        """
        # What is wrong is in the test, so its line is the one to show.
        __tracebackhide__ = True
        if isinstance(verdict, bool):
            verdict = "solved" if verdict else "unsolved"
        outcome: object = verdict
        kind: str | None = None
        why: object = reason
        numbers: dict[str, Any] = dict(scores)
        if not isinstance(verdict, str):
            if not hasattr(verdict, "outcome") or not hasattr(verdict, "scores"):
                msg = (
                    f"grade() got {verdict!r}; it takes {', '.join(map(repr, GRADES))}, True, "
                    "False, or an object with `outcome` and `scores`"
                )
                raise TypeError(msg)
            outcome, kind = verdict.outcome, getattr(verdict, "kind", None)
            why = getattr(verdict, "reason", None) if reason is None else reason
            numbers = {**verdict.scores, **numbers}
        if outcome not in GRADES:
            msg = f"grade() got outcome {outcome!r}; allowed are {', '.join(GRADES)}"
            raise ValueError(msg)
        if not isinstance(why, str | None):
            msg = f"grade() got reason={why!r}; a reason is a text"
            raise TypeError(msg)
        for name, value in numbers.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                msg = f"grade() got {name}={value!r}; a score must be a finite number"
                raise ValueError(msg)
        if self._state is not None:
            plain = {name: float(value) for name, value in numbers.items()}
            self._state.graded = Graded(outcome, plain, kind, why)


class _OutOfReach:
    """Stands for `llm` and `case` in a test body, where they have no meaning."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        msg = (
            f"{self._name!r} belongs to the prefetched function; "
            "a test sees only what that returned"
        )
        raise AttributeError(msg)


@pytest.fixture
def llm(model: str) -> object:
    """In a prefetched function: the case's client, `await llm.chat(messages) -> Reply`."""
    return _OutOfReach("llm")


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """The model's name, parametrised over the pool's models (see --ultrapar-model)."""
    param = getattr(request, "param", None)
    if not isinstance(param, str):
        msg = "the fixture 'model' needs --ultrapar-pool (or ini ultrapar_pool)"
        if pool_path(request.config) is not None:
            msg = (
                "the fixtures 'llm' and 'model' have a value in cases only: the test or its "
                "fixtures must name a prefetched fixture, not ask for one with "
                "request.getfixturevalue(); requests are sent by the prefetched function"
            )
        raise pytest.UsageError(msg)
    return param


@pytest.fixture
def case() -> object:
    """In a prefetched function: the case's id, seed, repetition, parameters and markers."""
    return _OutOfReach("case")


@pytest.fixture
def grade() -> Grader:
    """Record a measurement: `grade("solved", steps=3)`, `grade(True)`; never fails the test."""
    return Grader(prefetch.state)


@pytest.fixture
def ultrapar_repeat(request: pytest.FixtureRequest) -> int:
    """The repetition number of the case, from 0 (see --ultrapar-repeats)."""
    param = getattr(request, "param", 0)
    return param if isinstance(param, int) else 0


# The mark by which collection knows ours from a suite's own fixture of the same name.
model._get_wrapped_function().__ultrapar__ = "model"  # type: ignore[attr-defined]  # noqa: SLF001
