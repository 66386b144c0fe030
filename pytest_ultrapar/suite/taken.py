"""Cases that a suite takes from another one: generated like all others, then deselected.

A suite says so with `pytest.mark.ultrapar(taken_from="other")`. A case of it is taken when the
other suite has a case of the same model, repetition and parameters that is going to run in this
session, or that was graded in the run named by --ultrapar-reuse. Nobody is asked the same thing
twice then; on its own, the suite runs everything. Which cases stand for the taken ones is told to
whoever makes tables of the run (`taken.json`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar import pytest_internals
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.publish import write_whole
from pytest_ultrapar.results.taken_file import Taken
from pytest_ultrapar.suite.collection import (
    case_id_of,
    parameter,
    params_of,
    repetition,
    suite_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from pytest_ultrapar.records import Case, Scalar

TAKEN_FROM = "taken_from"
REUSED_FILE = "reused.json"

Question = tuple[str, str, int, tuple[tuple[str, str], ...]]
"""What tells whether two cases ask the same: suite, model, repetition, parameters."""


def question_of_case(case: Case) -> Question:
    """The question of a case of this or an earlier run."""
    return _question(case.suite, case.model, case.repeat, case.params)


def write_reused(directory: Path, reused: Mapping[Question, str]) -> None:
    """Leave what an earlier run answered where workers find it. Called before they start.

    Raises:
        ResultsError: It cannot be written.
    """
    path = directory / REUSED_FILE
    if reused:
        write_whole(path, msgspec.json.encode(sorted(reused.items())))
    else:
        # Left by a session that never got as far as its first episode, it would be believed.
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"cannot remove {path}: {error.strerror}"
            raise ResultsError(msg) from error


def read_reused(directory: Path) -> dict[Question, str]:
    """What an earlier run answered, and the case that did; empty when none is reused.

    Raises:
        ResultsError: It cannot be read, or is something else.
    """
    path = directory / REUSED_FILE
    try:
        return dict(msgspec.json.decode(path.read_bytes(), type=list[tuple[Question, str]]))
    except FileNotFoundError:
        return {}
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise ResultsError(msg) from error
    except msgspec.DecodeError as error:
        msg = f"{path} does not hold what an earlier run answered: {error}"
        raise ResultsError(msg) from error


def deselect_taken(
    config: pytest.Config,
    items: list[pytest.Item],
    reused: Callable[[], Mapping[Question, str]],
    *,
    run_seed: int,
    repeats: int,
) -> list[Taken]:
    """Deselect the cases that their suite takes from another one, as `-k` leaves out tests.

    Called after `-k`, `-m` and --ultrapar-model have left out theirs: what they left out of the
    other suite is not taken from it.

    Args:
        config: pytest's.
        items: What is selected; changed in place.
        reused: Questions that were answered in an earlier run, and the ids of the cases that did;
            called only if a suite takes any. What this session asks itself is taken from here.
        run_seed: Seed of the run; part of every case id.
        repeats: What --ultrapar-repeats says, >= 1.

    Returns:
        The cases taken, by the suites that took them; suites that took none are missing.
    """
    sources: dict[int, str | None] = {}
    for item in items:
        test = pytest_internals.test_identity(item)
        if test not in sources:
            sources[test] = _source_of(item)
    wanted = {source for source in sources.values() if source is not None}
    if not wanted:
        return []
    answered = reused()
    asked: dict[Question, pytest.Item] = {}
    for item in items:
        if (suite := suite_of(item)) in wanted and pytest_internals.will_not_run(item) is None:
            asked.setdefault(_question_of(item, suite, repeats), item)
    kept: list[pytest.Item] = []
    taken: list[pytest.Item] = []
    # Dictionaries for their keys, each once and in order.
    ids: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for item in items:
        source = sources[pytest_internals.test_identity(item)]
        question = _question_of(item, source, repeats) if source is not None else None
        if question is None or (question not in asked and question not in answered):
            kept.append(item)
            continue
        taken.append(item)
        here, earlier = ids.setdefault(suite_of(item), ({}, {}))
        if question in asked:
            here[case_id_of(asked[question], run_seed)] = None
        else:
            earlier[answered[question]] = None
    if taken:
        config.hook.pytest_deselected(items=taken)
        items[:] = kept
    return [Taken(suite, tuple(here), tuple(earlier)) for suite, (here, earlier) in ids.items()]


def _source_of(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("ultrapar")
    source = mark.kwargs.get(TAKEN_FROM) if mark is not None else None
    return source if isinstance(source, str) and source != suite_of(item) else None


def _question_of(item: pytest.Item, suite: str, repeats: int) -> Question:
    """The question that an item asks, as if it were one of `suite`."""
    return _question(
        suite,
        str(parameter(item, "model")),
        repetition(item, repeats),
        params_of(item),
    )


def _question(suite: str, model: str, repeat: int, params: Mapping[str, Scalar]) -> Question:
    # By `repr`: 0.8 is 0.8 in JSON and in Python, and 1, 1.0 and True are three values.
    return suite, model, repeat, tuple(sorted((name, repr(own)) for name, own in params.items()))
