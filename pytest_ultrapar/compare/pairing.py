"""Pair the cases that two runs have in common, and list the differences between the runs.

All functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun, labelled
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.model import answer_settings
from pytest_ultrapar.records import Case, by_key
from pytest_ultrapar.report.text import counted, listed
from pytest_ultrapar.store.manifest import answers_differ, settings_differ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.store.manifest import Manifest

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two runs, reduced to the cases that they have in common.

    Attributes:
        base_rows: The rows of these cases in the baseline, by case id.
        new_rows: The rows of these cases in the other run, by case id.
        left_out: Sentences about the cases that the comparison leaves out.
        questions: Sentences about differences that can change the prompt of a case.
        conditions: Sentences about differences that can change the speed of a case.
        n_kept: How many of the baseline's cases are also in the other run, not counting cases that
            either run skipped.
        n_base: How many cases the baseline did not skip. If the other run is a sample, only cases
            in the sample are counted.
        same_timed: Whether the makespans of both runs include exactly the same cases.
        timed_share: How many cases are timed in both runs, as a share (0 to 1) of the timed cases
            in the run that has more of them.
    """

    base: MeasuredRun
    new: MeasuredRun
    base_rows: Mapping[str, CaseRow]
    new_rows: Mapping[str, CaseRow]
    cases: tuple[Case, ...]
    left_out: tuple[str, ...]
    questions: tuple[str, ...]
    conditions: tuple[str, ...]
    n_kept: int
    n_base: int
    same_timed: bool
    timed_share: float

    @property
    def timed(self) -> list[tuple[CaseRow, CaseRow]]:
        """The pairs of rows that count towards the makespan and the latency in both runs."""
        return [
            (row, self.new_rows[case_id])
            for case_id, row in self.base_rows.items()
            if row.timed and self.new_rows[case_id].timed
        ]


def refuse_same(base: MeasuredRun, new: MeasuredRun) -> None:
    """Check that two runs are not the same run.

    Raises:
        ConfigError: They are the same run, or are in the same directory.
    """
    if base.directory == new.directory or base.run_id == new.run_id:
        refuse(f"{base.directory} and {new.directory} are the same run; compare two different runs")


def refuse_nothing_common(
    base: MeasuredRun, cases: Iterable[Case], *, seed: int, what: str
) -> None:
    """Check that a run has cases in common with the baseline.

    Args:
        base: The baseline.
        cases: The other run's planned cases.
        seed: The other run's seed.
        what: The name of the other run in messages.

    Raises:
        ConfigError: The runs have no case in common. The message gives the reason if it is known.
    """
    cases = list(cases)
    if {case.case_id for case in base.cases} & {case.case_id for case in cases}:
        return
    suites, own = ({case.suite for case in each} for each in (base.cases, cases))
    if base.manifest.seed != seed:
        why = (
            f"the run seed was {base.manifest.seed} and is {seed}, and cases depend on the seed;"
            f" run again with --ultrapar-seed={base.manifest.seed}"
        )
    elif not suites & own:
        was, is_now = (listed(sorted(each), _MOST_NAMED) for each in (suites, own))
        why = f"the suite was {was} and is {is_now}"
    else:
        why = "the models, tests or parameters differ"
    refuse(f"{what} has no case in common with {base.directory}: {why}")


def pair(
    base: MeasuredRun,
    new: MeasuredRun,
    base_rows: Mapping[str, CaseRow],
    new_rows: Mapping[str, CaseRow],
) -> Pairing:
    """Pair the cases that two runs have in common, in the baseline's order.

    Raises:
        ConfigError: They are the same run, or no common case was graded in both runs.
    """
    refuse_same(base, new)
    refuse_nothing_common(base, new.cases, seed=new.manifest.seed, what=str(new.directory))
    common = [case_id for case_id in base_rows if case_id in new_rows]
    if not any(base_rows[each].graded and new_rows[each].graded for each in common):
        refuse(
            f"{base.directory} and {new.directory} have {counted(len(common), 'case')} in common,"
            " but no common case was graded in both runs"
        )
    timed = [{key for key, row in rows.items() if row.timed} for rows in (base_rows, new_rows)]
    both = timed[0] & timed[1]
    known = set(common)
    had, has = _not_skipped(base, base_rows), _not_skipped(new, new_rows)
    if new.manifest.drawn_from:
        had &= {case.case_id for case in new.cases}
    return Pairing(
        base=base,
        new=new,
        base_rows={each: base_rows[each] for each in common},
        new_rows={each: new_rows[each] for each in common},
        cases=labelled((case for case in base.cases if case.case_id in known), base_rows),
        left_out=tuple(_left_out(("baseline", base, base_rows), ("new", new, new_rows))),
        questions=tuple(_questions(base.manifest, new.manifest)),
        conditions=(
            *_conditions(base.manifest, new.manifest),
            *_workers(base_rows.values(), new_rows.values()),
        ),
        n_kept=len(had & has),
        n_base=len(had),
        same_timed=timed[0] == timed[1],
        timed_share=len(both) / max(len(timed[0]), len(timed[1]), 1),
    )


def part_notes(runs: Mapping[str, MeasuredRun]) -> Iterator[str]:
    """Describe each run that is a sample, or whose cases were chosen by their earlier outcomes."""
    for word, run in runs.items():
        if run.manifest.drawn_from:
            yield f"{word} is a sample: {len(run.cases):,} of {run.manifest.drawn_from:,} cases"
        if ends := [one.value for one in run.manifest.effective if one.name == "only"]:
            yield (
                f"{word} contains only cases that ended as {ends[0]} in an earlier run: this "
                "selection alone makes its figures differ from that run's"
            )
        if {"--lf", "--last-failed"} & {*run.manifest.arguments}:
            yield f"{word} used --lf, which selects cases that failed before"


def _not_skipped(run: MeasuredRun, rows: Mapping[str, CaseRow]) -> set[str]:
    skipped = {key for key, row in rows.items() if row.outcome == "skipped"}
    return {case.case_id for case in run.cases} - skipped


def _left_out(*runs: tuple[str, MeasuredRun, Mapping[str, CaseRow]]) -> Iterator[str]:
    for (word, one, rows), (_, other, _) in permutations(runs):
        theirs = {case.case_id for case in other.cases}
        yield from part_notes({f"the {word} run": one})
        alone = Counter(case.suite for case in one.cases if case.case_id not in theirs)
        if alone:
            suites = listed([f"{n} from {suite}" for suite, n in alone.most_common()], _MOST_NAMED)
            yield f"{counted(alone.total(), 'case')} only in the {word} run ({suites})"
        outcomes = Counter(
            row.outcome for key, row in rows.items() if not row.graded and key in theirs
        )
        if outcomes:
            said = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common())
            yield f"{counted(outcomes.total(), 'case')} not graded in the {word} run ({said})"


def _was(what: str, then: object, now: object) -> Iterator[str]:
    """Yield a sentence if two values differ."""
    if then != now:
        yield f"{what} was {then} and is {now}"


def _each_was(what: str, then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each name whose two values differ."""
    for name in sorted({*then, *now}):
        yield from _was(what.format(name), then.get(name, "none"), now.get(name, "none"))


def _questions(base: Manifest, new: Manifest) -> Iterator[str]:
    yield from _was("the run seed", base.seed, new.seed)
    for said in _each_was("the {}", base.data, new.data):
        yield f"{said}, so the same case may send a different prompt"
    yield from _files(base.files, new.files)
    if base.simulated != new.simulated:
        kind = {True: "simulated", False: "real"}
        yield f"the answers were {kind[base.simulated]} and are {kind[new.simulated]}"
    yield from answers_differ(base.answered_by, new.answered_by)
    before, after = (answer_settings(one.effective, one.pool_lanes) for one in (base, new))
    yield from settings_differ(before, after)


def _conditions(base: Manifest, new: Manifest) -> Iterator[str]:
    yield from _was("the mode", base.mode, new.mode)
    yield from _was("the policy", base.policy, new.policy)
    yield from _was("the rate mode", base.rate_mode, new.rate_mode)
    yield from _was("Python", base.python, new.python)
    yield from _limits(base.pool_limits, new.pool_limits)
    yield from _was("the number of lanes", len(base.pool_lanes), len(new.pool_lanes))
    if len(base.pool_lanes) == len(new.pool_lanes) and base.pool_digest != new.pool_digest:
        yield "the pool file has changed (its digest differs)"
    faults = [
        "none" if run.faults is None else f"the file with digest {run.faults[:8]}"
        for run in (base, new)
    ]
    yield from _was("the fault script of the simulated provider", *faults)
    if base.machine is not None and new.machine is not None:
        machines = [
            f"{counted(one.cpus, 'core')}, {one.platform}" for one in (base.machine, new.machine)
        ]
        yield from _was("the machine", *machines)
    yield from _each_was("{}", base.versions, new.versions)
    for word, run in (("baseline", base), ("new", new)):
        if run.measured_from is not None:
            yield f"only the part of the {word} run after {run.measured_from:%H:%M:%S} UTC is timed"


def _limits(base: Iterable[Limit], new: Iterable[Limit]) -> Iterator[str]:
    then, now = ({limit.name: _numbers(limit) for limit in limits} for limits in (base, new))
    said = [*_each_was("the limit of {}", then, now)]
    yield from said[:_MOST_NAMED]
    if len(said) > _MOST_NAMED:
        yield f"{len(said) - _MOST_NAMED} more limits differ"


def _files(base: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences about changed suite files, if the runs have any file in common."""
    differ = [name for name in sorted({*base, *new}) if base.get(name) != new.get(name)]
    kinds = by_key(
        ("new" if name not in base else "removed" if name not in new else "changed", name)
        for name in (differ if base.keys() & new.keys() else ())
    )
    for what, names in kinds.items():
        files = f"{what} file{'s' if len(names) > 1 else ''}"
        yield f"{files} in the suite: {listed(names)}; the same case may send a different prompt"


def _numbers(limit: Limit) -> str:
    return ", ".join(f"{kind.word} {amount:g}" for kind, amount in limit.rows) or "unlimited"


def _workers(base: Iterable[CaseRow], new: Iterable[CaseRow]) -> Iterator[str]:
    then, now = (len({row.worker for row in rows if row.worker}) for rows in (base, new))
    yield from _was("the number of worker processes", then, now)
