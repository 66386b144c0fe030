"""Answers of an earlier run that this one takes over, and whether it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.earlier import graded_in_subprocess
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.pool.model import answered_by
from pytest_ultrapar.session.selection import Question, question_of_case
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.manifest import Manifest, answers_differ, read_manifest
from pytest_ultrapar.store.run_directory import resolve_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.pool.model import Pool


def reusable(name: str, *, seed: int, data: Mapping[str, str], pool: Pool) -> dict[Question, str]:
    """The questions that an earlier run answered and graded, and the ids of the cases that did.

    Args:
        name: The run, as `resolve_run` takes it.
        seed: Seed of this run.
        data: What the suites of this run say of their data (`pytest_ultrapar_data`).
        pool: What this run asks.

    Raises:
        ConfigError: There is no such run, it has no results, or it asked something else.
    """
    directory = resolve_run(name)
    try:
        manifest = read_manifest(directory)
        found = differences(manifest, seed=seed, data=data, pool=pool)
        if found:
            msg = f"--ultrapar-reuse: {directory} cannot be reused by this run: {'; '.join(found)}"
            raise ConfigError(msg)
        ids = graded_in_subprocess(directory)
    except ResultsError as error:
        msg = f"--ultrapar-reuse: {error}"
        raise ConfigError(msg) from error
    found_ids: dict[Question, str] = {}
    for case in read_cases(directory):
        if case.case_id in ids:
            found_ids.setdefault(question_of_case(case), case.case_id)
    return found_ids


def differences(earlier: Manifest, *, seed: int, data: Mapping[str, str], pool: Pool) -> list[str]:
    """What makes an earlier run's answers ones to other questions; empty when nothing does."""
    found: list[str] = []
    if earlier.seed != seed:
        found.append(f"its run seed was {earlier.seed}, this one's is {seed}")
    if earlier.simulated != pool.is_simulated:
        kind = {True: "simulated", False: "real"}
        then, now = kind[earlier.simulated], kind[pool.is_simulated]
        found.append(f"its answers were {then}, here they are {now}")
    else:
        found += answers_differ(earlier.answered_by, answered_by(pool))
    for name in sorted({*earlier.data, *data}):
        then, now = earlier.data.get(name, "none"), data.get(name, "none")
        if then != now:
            found.append(f"its {name} was {then}, this one's is {now}")
    return found
