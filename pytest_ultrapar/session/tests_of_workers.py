"""Tests that are not the same in all worker processes: xdist tells workers them by position."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.report.text import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.records import Case

_LONGEST = 120


def refuse_other_tests(one: Sequence[Case], other: Sequence[Case]) -> None:
    """See that two workers have the same parameters of their tests in the same places.

    Ids decide. What parameters hold may differ, such as a time; but not by having changed places,
    which comes of parameters that are taken from a set. Tests that only one worker has are found
    when all have collected.

    Raises:
        ConfigError: They have not; with the parameter and both values.
    """
    pairs = [*zip(one, other, strict=False)]
    unlike = [pair for pair in pairs if pair[0].nodeid != pair[1].nodeid]
    if not unlike and sorted(map(_held, one)) == sorted(map(_held, other)):
        unlike = [pair for pair in pairs if _held(pair[0]) != _held(pair[1])]
    for pair in unlike[:1]:
        before, after = ({**case.params, **case.content} for case in pair)
        names = [name for name in before if before[name] != after.get(name, before[name])]
        # Where nothing differs but ids, they show what has no text of its own.
        for name in [*names, *pair[0].content][: pair[0].test == pair[1].test]:
            mine, theirs = (_shown(case, name) for case in pair)
            refuse(_sentence(f"parameter {name!r} is {mine} in one and {theirs} in another"))


def tests_differ(one: Sequence[str], other: Sequence[str]) -> str | None:
    """A sentence about the first test that two workers do not have alike; None where all are.

    Args:
        one: Ids of the tests of one worker, in their order.
        other: Those of the other.
    """
    for mine, theirs in zip_longest(one, other, fillvalue="no test"):
        if mine != theirs:
            names = [shortened(name, _LONGEST) for name in (mine, theirs)]
            return _sentence(f"one collected {names[0]} where another has {names[1]}")
    return None


def _held(case: Case) -> str:
    return repr((case.test, case.params | case.content))


def _shown(case: Case, name: str) -> str:
    held = f" (content {case.content[name]})" if name in case.content else ""
    return f"{case.params.get(name)!r}{held} for {shortened(case.nodeid, _LONGEST)}"


def _sentence(what: str) -> str:
    return (
        f"the tests are not the same in all worker processes: {what}; parameters and ids must be "
        "the same in every process, in the same order: sort a set, and draw nothing at random"
    )
