"""What a test says of its case's answer: `grade`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, runtime_checkable

from pytest_ultrapar.session.prefetch import Graded

if TYPE_CHECKING:
    # Every pytest run imports this module; the records bring msgspec along (25 ms).
    from collections.abc import Mapping

    from pytest_ultrapar.records import Outcome
    from pytest_ultrapar.session.body_result import BodyResult
    from pytest_ultrapar.session.prefetch import CaseState

GRADES: tuple[Outcome, ...] = ("solved", "partial", "unsolved")
_TRUTHS = frozenset({"bool", "bool_"})
"""Names of Python's type and of numpy's, which is what its comparisons give."""


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

    def __init__(self, state: CaseState | BodyResult | None) -> None:
        self._state = state

    def __call__(
        self, outcome: bool | str | Verdict, reason: str | None = None, **scores: float
    ) -> None:
        """Record what the episode was worth.

        Args:
            outcome: `solved`, `partial` or `unsolved`; True for `solved` and False for `unsolved`;
                or an object with `outcome`, `scores` and perhaps `kind` and `reason`.
            reason: Why, in a sentence; it stands with the case wherever it is shown.
            scores: Numbers by name; True and False count as 1 and 0.

        Raises:
            TypeError: The outcome is none of these, or the reason no text.
            ValueError: Another outcome, or a score that is not a finite number.
        """
        # What is wrong is in the test, so its line is the one to show.
        __tracebackhide__ = True
        word: Any = outcome
        kind: str | None = None
        why: object = reason
        numbers: dict[str, Any] = dict(scores)
        if hasattr(outcome, "outcome") and hasattr(outcome, "scores"):
            word, kind = outcome.outcome, getattr(outcome, "kind", None)
            why = getattr(outcome, "reason", None) if reason is None else reason
            numbers = {**outcome.scores, **numbers}
        if type(word).__name__ in _TRUTHS:
            word = "solved" if word else "unsolved"
        if not isinstance(word, str):
            msg = (
                f"grade() got {word!r}; it takes {', '.join(map(repr, GRADES))}, True, "
                "False, or an object with `outcome` and `scores`"
            )
            raise TypeError(msg)
        if word not in GRADES:
            msg = f"grade() got outcome {word!r}; allowed are {', '.join(GRADES)}"
            raise ValueError(msg)
        if not isinstance(why, str | None):
            msg = f"grade() got reason={why!r}; a reason is a text"
            raise TypeError(msg)
        plain = {}
        for name, value in numbers.items():
            number = _finite(value)
            if number is None:
                msg = f"grade() got {name}={value!r}; a score must be a finite number"
                raise ValueError(msg)
            plain[_text(name)] = number
        if self._state is not None:
            self._state.graded = Graded(_text(word), plain, _text(kind), _text(why))


def _text(value: Any) -> Any:  # noqa: ANN401 - a text of any library as Python's own
    return str.__str__(value) if isinstance(value, str) else value


def _finite(value: object) -> float | None:
    """A number of any library; None where it is none."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
