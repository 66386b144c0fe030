"""Which cases a rule's filters select, and whether the names in them are known; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.metrics import SCORE
from pytest_ultrapar.compare.rules import Rule, nearest
from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_ultrapar.records import Case, Scalar

_ATTRIBUTES = ("model", "suite", "repeat")


def selected(rule: Rule, cases: Iterable[Case]) -> set[str]:
    """Ids of the cases that have all that the rule's filters ask for."""
    return {
        case.case_id
        for case in cases
        if all(_fits(_value(case, name), text) for name, text in rule.filters)
    }


def check_filters(rules: Iterable[Rule], cases: Sequence[Case]) -> None:
    """Make sure that each filter names something that there is.

    Args:
        rules: The rules.
        cases: The planned cases of the run that is judged.

    Raises:
        ConfigError: A model, suite, parameter or value is unknown, or filters fit no case together;
            the nearest name is suggested.
    """
    for rule in rules:
        for name, text in rule.filters:
            _check_filter(rule, name, text, cases)
        if rule.filters and not selected(rule, cases):
            msg = f"gate rule {rule.text!r}: no case has all of this together"
            raise ConfigError(msg)


def check_scores(rules: Iterable[Rule], known: Collection[str], *, run: str) -> None:
    """Make sure that each score that a rule names is one of a run's.

    Args:
        rules: The rules.
        known: Names of the run's scores.
        run: How to call the run.

    Raises:
        ConfigError: It is not; the nearest is suggested.
    """
    for rule in rules:
        name = rule.metric.removeprefix(SCORE)
        if rule.metric.startswith(SCORE) and name not in known:
            msg = (
                f"gate rule {rule.text!r}: {run} has no score {name}{nearest(name, sorted(known))}"
            )
            raise ConfigError(msg)


def check_baseline(rules: Iterable[Rule]) -> None:
    """Make sure that no rule needs a baseline, where there is none.

    Raises:
        ConfigError: One does.
    """
    for rule in rules:
        if rule.needs_baseline:
            msg = (
                f"gate rule {rule.text!r} compares with a baseline, and there is none: name one"
                " (--baseline RUN, in a run --ultrapar-gate-baseline RUN), or write a bound without"
                " sign and % where the metric has one"
            )
            raise ConfigError(msg)


def _check_filter(rule: Rule, name: str, text: str, cases: Sequence[Case]) -> None:
    parameters = sorted({key for case in cases for key in case.params})
    if name not in {*_ATTRIBUTES, *parameters}:
        near = nearest(name, [*_ATTRIBUTES, *parameters])
        msg = f"gate rule {rule.text!r}: {name} is no parameter of a case{near}"
        raise ConfigError(msg)
    values = list(dict.fromkeys(_value(case, name) for case in cases))
    if not any(_fits(value, text) for value in values):
        words = [_word(value) for value in values if value is not None]
        pattern = " (filters take no patterns)" if set(text) & set("*?") else ""
        msg = f"gate rule {rule.text!r}: no case has {name} {text!r}{pattern}{nearest(text, words)}"
        raise ConfigError(msg)


def _value(case: Case, name: str) -> Scalar:
    if name in _ATTRIBUTES:
        value: Scalar = getattr(case, name)
        return value
    return case.params.get(name)


def _fits(value: Scalar, text: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return value is not None and _word(value) == text


def _word(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
