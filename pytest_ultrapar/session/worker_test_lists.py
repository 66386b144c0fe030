"""Check that all workers have the same tests, because xdist identifies tests by their position."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.report.text import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.records import Case

_LONGEST = 120


def check_same_tests(one: Sequence[Case], other: Sequence[Case]) -> None:
    """Check that two workers have the same parameters for the test at each position.

    Tests are compared by id. Values, such as a time, may differ between workers. But if both have
    the same values in a different order, the parameters come from a set, and the run refuses them.
    If only one worker has a test, this is detected later, when all workers have collected.

    Raises:
        ConfigError: Parameters differ; the message names the parameter and both values.
    """
    pairs = [*zip(one, other, strict=False)]
    unlike = [pair for pair in pairs if pair[0].nodeid != pair[1].nodeid]
    if not unlike and sorted(map(_held, one)) == sorted(map(_held, other)):
        unlike = [pair for pair in pairs if _held(pair[0]) != _held(pair[1])]
    for pair in unlike[:1]:
        before, after = ({**case.params, **case.content} for case in pair)
        names = [name for name in before if before[name] != after.get(name, before[name])]
        # If only the ids differ, show also the parameters that are not plain values.
        for name in [*names, *pair[0].content][: pair[0].test == pair[1].test]:
            mine, theirs = (_shown(case, name) for case in pair)
            refuse(_sentence(f"parameter {name!r} is {mine} in one process, {theirs} in another"))


def tests_differ(one: Sequence[str], other: Sequence[str]) -> str | None:
    """A sentence about the first test that differs between two workers; None if all are equal.

    Args:
        one: Ids of the tests of one worker, in their order.
        other: Ids of the tests of the other worker.
    """
    for mine, theirs in zip_longest(one, other, fillvalue="no test"):
        if mine != theirs:
            names = [shortened(name, _LONGEST) for name in (mine, theirs)]
            return _sentence(f"one process collected {names[0]}, another {names[1]}")
    return None


def _held(case: Case) -> str:
    return repr((case.test, case.params | case.content))


def _shown(case: Case, name: str) -> str:
    held = f" (content {case.content[name]})" if name in case.content else ""
    return f"{case.params.get(name)!r}{held} for {shortened(case.nodeid, _LONGEST)}"


def _sentence(what: str) -> str:
    return (
        f"the tests are not the same in all worker processes: {what}; give every process the same "
        "parameters and ids in the same order: sort sets, and use no random values"
    )
