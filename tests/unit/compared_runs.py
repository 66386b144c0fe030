"""Small finished runs with tables, for tests of comparing and gates."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.unit.finished_run import NOW, episode, grade, make_run, write_journal

MODELS = ("alpha", "beta")
SEATS = 4


def outcomes_of(n: int, *, solved: float) -> list[str]:
    """`n` outcomes, of which the first share is solved."""
    return ["solved" if number < solved * n else "unsolved" for number in range(n)]


def write_run(
    path: Path,
    outcomes: dict[str, list[str]],
    *,
    suite: str = "phase53",
    factor: float = 1.0,
    seed: int = 5,
    first: int = 0,
    scores: bool = False,
    clustered: bool = False,
    repeats: int = 1,
    tests: tuple[str, ...] = ("test",),
    ended: bool = True,
    **manifest: object,
) -> Path:
    """A run directory with tables.

    Args:
        path: The directory; its name is in the run's id.
        outcomes: The outcomes of each model's cases; `None` is a planned case that never ran.
        suite: Folder of the test.
        factor: Multiplies the durations of the episodes, which are 1 to 1.2 s.
        seed: The run seed, which is part of the case ids.
        first: Number of the first case.
        scores: Whether graded cases have the score `workflow`: 0.9 if solved, else 0.2.
        clustered: Whether cases of all models with the same number are one case cluster.
        repeats: Repetitions of a cell, which are consecutive cases.
        tests: Names of the tests. The cases belong to them in turn.
        ended: Whether the manifest has the end of the run.
        manifest: Other fields of the manifest.
    """
    cases: list[Case] = []
    records: list[msgspec.Struct] = []
    for model, own in outcomes.items():
        for number, outcome in enumerate(own, start=first):
            index = len(cases)
            cell, repeat = divmod(number, repeats)
            cases.append(
                Case(
                    index,
                    f"{suite}-{model}-{number}-{seed}",
                    f"s/{suite}/test_x.py::{tests[number % len(tests)]}[{model}-{number}]",
                    suite,
                    model,
                    repeat,
                    {"flaw": "order" if cell % 2 else "drop", "level": cell % 3, "deep": True},
                    index,
                    cluster=f"{number}" if clustered else None,
                )
            )
            if outcome is None:
                continue
            start_s = index // SEATS * factor * 1.2
            seconds = factor * (1 + (number * 7 % 11) / 50)
            if outcome == "infra":
                played = episode(index, start_s, start_s + seconds, "infra")
                graded = grade(index, "infra", test="skipped", kind="timeout", scores={})
            else:
                given = {"workflow": 0.9 if outcome == "solved" else 0.2} if scores else {}
                played = episode(index, start_s, start_s + seconds)
                graded = grade(index, outcome, scores=given, reason=f"{outcome} it is")
            records += [replace(one, case_id=cases[-1].case_id) for one in (played, graded)]
    run = make_run(path, cases, models=tuple(outcomes), seed=seed, **manifest)
    if ended:
        found = read_manifest(run.path)
        write_manifest(run.path, replace(found, ended_at=NOW))
    write_journal(run, "gw0", *records)
    compact(run.path)
    return run.path


def same_cases(n: int = 40, *, solved: float = 0.9) -> dict[str, list[str]]:
    """The same outcomes for both models."""
    return {model: outcomes_of(n, solved=solved) for model in MODELS}
