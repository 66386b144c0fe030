"""Earlier runs: which one a plan stands on, and whose answers a run takes over."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.analysis.earlier import earlier_in_subprocess, graded_in_subprocess
from pytest_ultrapar.analysis.plan.expectations import EarlierRun
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.errors import ConfigError, ResultsError, refuse, unusable
from pytest_ultrapar.pool.model import answer_settings, answered_by
from pytest_ultrapar.pool.roles import roles_differ, roles_of
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.report.browse.run_cases import read_run_cases
from pytest_ultrapar.session.selection import Again, Question, question_of_case
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
"""Newest runs that are looked at: 20 of 560 cases take 0.05 s."""
_ENOUGH = 0.9
"""Share of the cases of the best run from which a newer one is preferred to it."""


class History(NamedTuple):
    """An earlier run as far as it tells of this one.

    Attributes:
        run: Its episodes; none where there is no such run.
        notes: What to say of it.
    """

    run: EarlierRun
    notes: tuple[str, ...]


def find_history(
    given: str | None, pool: Pool, data: Mapping[str, str], cases: Sequence[Case] = ()
) -> History:
    """The earlier run that a plan stands on.

    Args:
        given: What the option says: a run as `resolve_run` takes it, `none`, or None for the
            newest one that covers most of the cases, or else the latest.
        pool: Whose models are going to be asked.
        data: What the suites say of their data.
        cases: Those to be planned.

    Raises:
        ConfigError: The run that was named does not exist, has no results or does not fit.
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
            return History(_NOTHING, (f"not from {directory}: {why}",))
        refuse(f"{_OPTION}: {directory} says nothing about this run: {why}")
    why = (
        f", the newest of {chosen[1]} runs that covers most of these cases"
        if chosen and chosen[1] > 1
        else ""
    )
    notes = [f"the earlier run is {directory}, mode {manifest.mode}{why}", *found.notes]
    notes += [
        f"its {name} was different, so its turns and tokens may differ"
        for name in sorted({*manifest.data, *data})
        if manifest.data.get(name, "none") != data.get(name, "none")
    ]
    return History(found.run, tuple(notes))


def choose_run(cases: Sequence[Case], pool: Pool) -> tuple[Path, int] | None:
    """The newest run in the default place that covers most of the cases; None where none does any.

    A run covers a case by the same case or one of the same test function and model, and counts
    with the share of its cases that were graded: one that was interrupted says little. Only
    manifests, planned cases and summaries are read.

    Args:
        cases: Those to be planned.
        pool: Whose models are going to be asked.

    Returns:
        Its directory, absolute, and among how many runs it was chosen.
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
    """The newest run in the default place that estimated limits of the same models."""
    for directory in _newest():
        with suppress(ResultsError):
            manifest = read_manifest(directory)
            is_same = _silent_models(pool, manifest) == frozenset()
            if is_same and any(one.estimated for one in manifest.lanes):
                return manifest
    return None


def _newest() -> list[Path]:
    """Directories of runs, each once, the newest first; `latest` may point elsewhere."""
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
    # The same case tells more than one that is like it.
    return share * (n_same + n_alike) / 2


def _fitting(directory: Path, manifest: Manifest, pool: Pool) -> History:
    if manifest.replayed is not None:
        return History(_NOTHING, ("it is a replay, which measures nothing",))
    if manifest.simulated != pool.is_simulated:
        was, here = _kind(manifest.simulated), _kind(pool.is_simulated)
        return History(_NOTHING, (f"its answers were {was}, here they are {here}",))
    notes = answers_differ(manifest.answered_by, answered_by(pool))
    others = _others(manifest, pool)
    slower = _other_latency(manifest, pool) - others
    if slower:
        named = ", ".join(model for model in pool.models if model in slower)
        notes.append(f"{named} had another simulated latency")
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
        notes = notes or ["it has no graded case of these models"]
    return History(msgspec.structs.replace(run, episodes=own, roles=roles), tuple(notes))


def _silent_models(pool: Pool, manifest: Manifest) -> frozenset[str] | None:
    """Models of which a run says nothing here; None where it says nothing of any."""
    if manifest.replayed is not None or manifest.simulated != pool.is_simulated:
        return None
    return frozenset(_others(manifest, pool) | _other_latency(manifest, pool))


def _others(manifest: Manifest, pool: Pool) -> set[str]:
    """Models that somebody else answers for now."""
    return {
        model for model, who in answered_by(pool).items() if manifest.answered_by.get(model) != who
    }


def _other_latency(manifest: Manifest, pool: Pool) -> set[str]:
    """Simulated models whose latency was not what it is now."""

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


# -- answers that a run takes over -----------------------------------------------------------------


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
    """What makes an earlier run's answers ones to other questions; empty when nothing does."""
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


def again(options: Options) -> Again:
    """The cases that `--ultrapar-only` selects; of a run that is resumed those that it has.

    Raises:
        ConfigError: A word is none of the allowed ones, or there is no such run.
    """
    option = Options.only.option
    words = {word.strip() for word in str(options.only).split(",")}
    if not words <= {*_ENDS}:
        refuse(
            f"{option} takes some of {', '.join(_ENDS)}, with commas between them "
            f"(got {options.only!r})"
        )
    earlier = options.resume or options.only_of or options.regrade or options.replay or LATEST
    with unusable(f"{option}: "):
        directory = resolve_run(earlier)
        run, manifest = read_run_cases(directory), read_manifest(directory)
    if options.resume and all(one.name != "only" for one in manifest.effective):
        refuse(f"{option}: the run that is resumed was begun without it; leave out one of the two")
    ids = (
        one.case.case_id
        for one in run.cases
        if options.resume or one.state in words or ("failed" in words and one.test_failed)
    )
    return Again(manifest.run_id, manifest.seed, frozenset(ids))


def _kind(simulated: bool) -> str:
    return "simulated" if simulated else "real"
