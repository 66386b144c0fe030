"""Find earlier runs: to base a plan on, to reuse their answers, or to run some cases again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.analysis.earlier_results import earlier_in_subprocess, graded_in_subprocess
from pytest_ultrapar.analysis.plan.expectations import EarlierRun
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.errors import ConfigError, ResultsError, refuse, unusable
from pytest_ultrapar.pool.model import answer_settings, answered_by
from pytest_ultrapar.pool.roles import roles_differ, roles_of
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.report.browse.run_cases import read_run_cases
from pytest_ultrapar.session.selection import Question, SelectedCases, question_of_case
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST
from pytest_ultrapar.store.manifest import Manifest, answers_differ, read_manifest, settings_differ
from pytest_ultrapar.store.run_directory import DEFAULT_PARENT, LATEST, resolve_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.records import Case

_OPTION = Options.plan_from.option
_NONE = "none"
_NOTHING = EarlierRun((), 0.0)
_MOST_RUNS = 20
"""How many of the newest runs are read. Reading 20 runs of 560 cases each takes 0.05 s."""
_ENOUGH = 0.9
"""A newer run is preferred if it covers at least this share of the cases that the best run
covers."""


class History(NamedTuple):
    """The part of an earlier run that applies to this run.

    Attributes:
        run: The episodes of the earlier run that apply; empty if there is no such run.
        notes: Sentences about the earlier run.
    """

    run: EarlierRun
    notes: tuple[str, ...]


def find_history(
    given: str | None, pool: Pool, data: Mapping[str, str], cases: Sequence[Case] = ()
) -> History:
    """Find the earlier run that a plan uses.

    Args:
        given: The option's value: a run in a form that `resolve_run` accepts, or `none`. If None,
            the plan uses the run that `choose_run` finds, or the latest run if no run covers any
            case.
        pool: The pool whose models are used.
        data: The suites' descriptions of their data.
        cases: The cases to plan.

    Raises:
        ConfigError: The named run does not exist, has no results, or has no measurements for these
            models.
    """
    if given == _NONE:
        return History(_NOTHING, ())
    chosen = choose_run(cases, pool) if given is None else None
    try:
        directory = chosen[0] if chosen else resolve_run(given or LATEST)
    except ConfigError:
        if given is None:
            return History(_NOTHING, ("there is no earlier run in .ultrapar",))
        raise
    try:
        manifest = read_manifest(directory)
        found = _fitting(directory, manifest, pool)
    except ResultsError as error:
        found = History(_NOTHING, (str(error),))
    if not found.run.episodes:
        why = "; ".join(found.notes)
        if given is None:
            return History(_NOTHING, (f"{directory} is not used: {why}",))
        refuse(f"{_OPTION}: {directory} has no measurements that this run can use: {why}")
    why = (
        f"; among {chosen[1]} runs, it is the newest that covers these cases about as well as any "
        "other"
        if chosen and chosen[1] > 1
        else ""
    )
    notes = [f"the earlier run is {directory}, mode {manifest.mode}{why}", *found.notes]
    notes += [
        f"the earlier run had different data ({name}), so turns and tokens may differ"
        for name in sorted({*manifest.data, *data})
        if manifest.data.get(name, "none") != data.get(name, "none")
    ]
    return History(found.run, tuple(notes))


def choose_run(cases: Sequence[Case], pool: Pool) -> tuple[Path, int] | None:
    """Find the newest run in the default directory that covers nearly as many cases as the best.

    A run covers a case if it contains the same case, or a case of the same test function and model.
    The number of covered cases is multiplied by the share of the run's cases that were graded,
    because an interrupted run contains few measurements. This reads only manifests, planned cases
    and summaries.

    Args:
        cases: The cases to plan.
        pool: The pool whose models are used.

    Returns:
        The run's absolute directory, and the number of runs compared; None if no run covers a case.
    """
    covered: dict[Path, float] = {}
    newest = _newest()
    for directory in newest:
        with suppress(ResultsError):
            covered[directory] = _covered(directory, cases, pool)
    most = max(covered.values(), default=0.0)
    if most <= 0:
        return None
    return next(one for one in covered if covered[one] >= _ENOUGH * most), len(newest)


def newest_estimates(pool: Pool) -> Manifest | None:
    """Find the newest run in the default directory that estimated limits for the same models."""
    for directory in _newest():
        with suppress(ResultsError):
            manifest = read_manifest(directory)
            is_same = _silent_models(pool, manifest) == frozenset()
            if is_same and any(one.estimated for one in manifest.lanes):
                return manifest
    return None


def _newest() -> list[Path]:
    """The directories of the newest runs, newest first, without duplicates.

    If `latest` points to a run in another place, that run is included.
    """
    began: dict[Path, float] = {}
    for place in (LATEST, "*", "*/*"):
        for manifest in DEFAULT_PARENT.glob(f"{place}/{MANIFEST}"):
            with suppress(OSError):
                began[manifest.parent.resolve()] = manifest.stat().st_mtime
    return sorted(began, key=began.__getitem__, reverse=True)[:_MOST_RUNS]


def _covered(directory: Path, cases: Sequence[Case], pool: Pool) -> float:
    summary = read_summary(directory)
    silent = _silent_models(pool, read_manifest(directory))
    if silent is None or summary is None or not summary.statistics.n_planned:
        return 0.0
    if not any(directory.glob("results.*")):
        return 0.0
    then = [case for case in read_cases(directory) if case.model not in silent]
    ids = {case.case_id for case in then}
    tests = {(case.test, case.model) for case in then}
    n_same = sum(case.case_id in ids for case in cases)
    n_alike = sum((case.test, case.model) in tests for case in cases)
    share = summary.statistics.n_graded / summary.statistics.n_planned
    # A case that the earlier run contains counts twice as much as one that is only similar.
    return share * (n_same + n_alike) / 2


def _fitting(directory: Path, manifest: Manifest, pool: Pool) -> History:
    if manifest.replayed is not None:
        return History(_NOTHING, ("it is a replay, which measures nothing",))
    if manifest.simulated != pool.is_simulated:
        was, here = _kind(manifest.simulated), _kind(pool.is_simulated)
        return History(_NOTHING, (f"its answers were {was}, but this run's are {here}",))
    notes = answers_differ(manifest.answered_by, answered_by(pool))
    others = _others(manifest, pool)
    slower = _other_latency(manifest, pool) - others
    if slower:
        named = ", ".join(model for model in pool.models if model in slower)
        notes.append(f"{named} had a different simulated latency")
    others |= slower
    run = earlier_in_subprocess(directory)
    then = roles_of(manifest.effective)
    roles = tuple(
        role
        for role in run.roles
        if then[role] == pool.roles.get(role) and then[role] not in others
    )
    own = tuple(
        one
        for one in run.episodes
        if one.model in pool.models and one.model not in others and one.role in {"", *roles}
    )
    if not own:
        notes = notes or ["it has no graded cases for these models"]
    return History(msgspec.structs.replace(run, episodes=own, roles=roles), tuple(notes))


def _silent_models(pool: Pool, manifest: Manifest) -> frozenset[str] | None:
    """Models for which a run has no usable measurements; None means every model."""
    if manifest.replayed is not None or manifest.simulated != pool.is_simulated:
        return None
    return frozenset(_others(manifest, pool) | _other_latency(manifest, pool))


def _others(manifest: Manifest, pool: Pool) -> set[str]:
    """Models that have a different server or simulator now than in the earlier run."""
    return {
        model for model, who in answered_by(pool).items() if manifest.answered_by.get(model) != who
    }


def _other_latency(manifest: Manifest, pool: Pool) -> set[str]:
    """Simulated models whose simulated latency has changed since the earlier run."""

    def of(values: Any) -> dict[str, object]:  # noqa: ANN401 - both are tuples of EffectiveValue
        return {one.name: one.value for one in values if " latency " in one.name}

    then, now = of(manifest.effective), of(pool.effective)
    return {
        model.name
        for provider in pool.providers
        if provider.is_simulated
        for model in provider.models
        for name in now
        if name.startswith(f"{provider.name}/{model.name} latency ") and then.get(name) != now[name]
    }


# -- answers from an earlier run -------------------------------------------------------------------


def reusable(name: str, *, seed: int, data: Mapping[str, str], pool: Pool) -> dict[Question, str]:
    """Return the questions that an earlier run answered and graded, with the ids of their cases.

    Args:
        name: The run, in a form that `resolve_run` accepts.
        seed: Seed of this run.
        data: How this run's suites describe their data (`pytest_ultrapar_data`).
        pool: The pool of this run.

    Raises:
        ConfigError: There is no such run, it has no results, or its questions differ from this
            run's.
    """
    directory = resolve_run(name)
    with unusable("--ultrapar-reuse: "):
        manifest = read_manifest(directory)
        found = differences(manifest, seed=seed, data=data, pool=pool)
        if found:
            refuse(f"{directory} cannot be reused by this run: {'; '.join(found)}")
        ids = graded_in_subprocess(directory)
    found_ids: dict[Question, str] = {}
    for case in read_cases(directory):
        if case.case_id in ids:
            found_ids.setdefault(question_of_case(case), case.case_id)
    return found_ids


def differences(earlier: Manifest, *, seed: int, data: Mapping[str, str], pool: Pool) -> list[str]:
    """Return the reasons why an earlier run's questions differ from this run's; may be empty."""
    found: list[str] = []
    if earlier.simulated == pool.is_simulated:
        found += answers_differ(earlier.answered_by, answered_by(pool))
    found += roles_differ(earlier.effective, pool.effective)
    then = answer_settings(earlier.effective, earlier.pool_lanes)
    now = answer_settings(pool.effective, pool.lanes)
    then |= {"run seed": str(earlier.seed), "kind of answers": _kind(earlier.simulated)}
    now |= {"run seed": str(seed), "kind of answers": _kind(pool.is_simulated)}
    for name in sorted({*earlier.data, *data}):
        then[name], now[name] = earlier.data.get(name, "none"), data.get(name, "none")
    return found + settings_differ(then, now)


_ENDS = ("unsolved", "partial", "infra", "error", "failed")


def again(options: Options) -> SelectedCases:
    """Return the cases that `--ultrapar-only` selects. A resumed run keeps its selection.

    Raises:
        ConfigError: The option contains an unknown word, or there is no such run.
    """
    option = Options.only.option
    words = {word.strip() for word in str(options.only).split(",")}
    if not words <= {*_ENDS}:
        refuse(
            f"{option} takes one or more of {', '.join(_ENDS)}, separated by commas "
            f"(got {options.only!r})"
        )
    earlier = options.resume or options.only_of or options.regrade or options.replay or LATEST
    with unusable(f"{option}: "):
        directory = resolve_run(earlier)
        run, manifest = read_run_cases(directory), read_manifest(directory)
    if options.resume and all(one.name != "only" for one in manifest.effective):
        refuse(f"{option}: leave out this option, because the resumed run was started without it")
    ids = (
        one.case.case_id
        for one in run.cases
        if options.resume or one.state in words or ("failed" in words and one.test_failed)
    )
    return SelectedCases(manifest.run_id, manifest.seed, frozenset(ids))


def _kind(simulated: bool) -> str:
    return "simulated" if simulated else "real"
