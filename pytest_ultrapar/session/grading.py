"""`grade`: the measurement that a test records for its case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, runtime_checkable

from pytest_ultrapar.session.prefetch import Graded

if TYPE_CHECKING:
    # Every pytest run imports this module, and the records import msgspec (25 ms), so import them
    # only for type checkers.
    from pytest_ultrapar.records import Outcome
    from pytest_ultrapar.session.body_result import BodyResult
    from pytest_ultrapar.session.prefetch import CaseState

GRADES: tuple[Outcome, ...] = ("solved", "partial", "unsolved", "scored")
_TRUTHS = frozenset({"bool", "bool_"})
"""Names of the boolean types of Python and numpy. Comparisons in numpy return numpy's type."""


@runtime_checkable
class Verdict(Protocol):
    """An object that `grade` accepts: anything with an outcome and scores."""

    @property
    def outcome(self) -> str | None:
        """`solved`, `partial` or `unsolved`; None or `scored` if only scores count."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Numbers by name."""


class Grader:
    """The value of the fixture `grade`: call it once to record a measurement.

    The measurement itself never fails the test, even if the answer is wrong.
    """

    def __init__(self, state: CaseState | BodyResult | None) -> None:
        self._state = state

    def __call__(
        self,
        outcome: bool | str | Verdict | None,
        reason: str | None = None,
        labels: Mapping[str, str | float] | None = None,
        **scores: float,
    ) -> None:
        """Record the grade of the episode.

        Args:
            outcome: `solved`, `partial` or `unsolved`; True for `solved`, False for `unsolved`;
                None or `scored` if only scores count; or an object with `outcome`, `scores` and
                optionally `kind`, `reason` and `labels`.
            reason: The reason for the outcome, in one sentence. Reports show it with the case.
            labels: Strings or numbers by name, such as the option that the model chose. Each
                becomes a text column.
            scores: Numbers by name; True and False are stored as 1 and 0.

        Raises:
            TypeError: The outcome has any other type, the reason is not a string, or a
                label is neither a string nor a number.
            ValueError: The outcome is unknown, a score is not a finite number, or the outcome is
                `scored` without a score.
        """
        # The error is in the test, so the traceback shows the test's line.
        __tracebackhide__ = True
        given: Any = outcome
        word: Any = outcome
        kind: str | None = None
        why: object = reason
        numbers: dict[str, Any] = dict(scores)
        texts: Any = labels
        if hasattr(outcome, "outcome") and hasattr(outcome, "scores"):
            word, kind = given.outcome, getattr(outcome, "kind", None)
            why = getattr(outcome, "reason", None) if reason is None else reason
            texts = getattr(outcome, "labels", None) if labels is None else labels
            numbers = {**given.scores, **numbers}
        if type(word).__name__ in _TRUTHS:
            word = "solved" if word else "unsolved"
        word = "scored" if word is None else word
        if not isinstance(word, str):
            raise TypeError(
                f"grade() got {word!r}; it takes {', '.join(map(repr, GRADES))}, True, "
                "False, None, or an object with `outcome` and `scores`"
            )
        if word not in GRADES:
            raise ValueError(f"grade() got outcome {word!r}; allowed: {', '.join(GRADES)}")
        if not isinstance(why, str | None):
            raise TypeError(f"grade() got reason={why!r}; a reason must be a string")
        if not isinstance(texts, Mapping | None):
            raise TypeError(
                f"grade() got labels={texts!r}; labels must be a dict such as {{'answer': 'B'}}"
            )
        for name, value in (texts or {}).items():
            is_plain = isinstance(value, str) or finite(value) is not None
            if not (isinstance(name, str) and is_plain):
                raise TypeError(
                    f"grade() got the label {name!r}: {value!r}; its name must be a string, "
                    "and its value a string or a number"
                )
        plain = {}
        for name, value in numbers.items():
            number = finite(value)
            if number is None:
                raise ValueError(f"grade() got {name}={value!r}; a score must be a finite number")
            plain[_text(name)] = number
        if word == "scored" and not plain:
            raise ValueError(
                "grade() got neither an outcome nor a score; pass at least one of them"
            )
        if self._state is not None:
            named = {_text(name): str(_text(value)) for name, value in (texts or {}).items()}
            self._state.graded = Graded(_text(word), plain, _text(kind), _text(why), named)


def _text(told: Any) -> Any:  # noqa: ANN401 - a text of any library as a plain str, in UTF-8
    return str.encode(told, errors="backslashreplace").decode() if isinstance(told, str) else told


def finite(value: object) -> float | None:
    """A number of Python or any library, as a float; None if the value is not a finite number."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
