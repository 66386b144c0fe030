"""What a plan's expectations stand on: an earlier run, what the pool says, what suites say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.leading.earlier_runs import choose_run
from pytest_ultrapar.leading.pool_hints import ASSUMED_S
from pytest_ultrapar.plan.earlier import EarlierRun
from pytest_ultrapar.pool.answered_by import answered_by
from pytest_ultrapar.results.earlier import earlier_in_subprocess
from pytest_ultrapar.results.manifest import Manifest, answers_differ, read_manifest
from pytest_ultrapar.results.rundir import LATEST, resolve_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pytest

    from pytest_ultrapar.plan.expectations import Expected, Hint
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.records import Case

OPTION = "--ultrapar-plan-from"
NONE = "none"
NOTHING = EarlierRun((), 0.0)


@dataclass(frozen=True, slots=True)
class History:
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
    if given == NONE:
        return History(NOTHING, ())
    chosen = choose_run(cases, partial(_silent_models, pool)) if given is None else None
    try:
        directory = chosen.directory if chosen else resolve_run(given or LATEST)
    except ConfigError:
        if given is None:
            return History(NOTHING, ("there is no earlier run in .ultrapar",))
        raise
    try:
        manifest = read_manifest(directory)
        found = _fitting(directory, manifest, pool)
    except ResultsError as error:
        if given is None:
            return History(NOTHING, (f"not from the latest run: {error}",))
        msg = f"{OPTION}: {error}"
        raise ConfigError(msg) from error
    if not found.run.episodes:
        if given is None:
            return History(NOTHING, (f"not from {directory}: {'; '.join(found.notes)}",))
        msg = f"{OPTION}: {directory} says nothing of this run: {'; '.join(found.notes)}"
        raise ConfigError(msg)
    why = (
        f", the newest of {chosen.n_looked_at} runs that covers most of these cases"
        if chosen and chosen.n_looked_at > 1
        else ""
    )
    notes = [f"the earlier run is {directory}, mode {manifest.mode}{why}", *found.notes]
    notes += [
        f"its {name} was another one, so its turns and tokens may differ"
        for name in sorted({*manifest.data, *data})
        if manifest.data.get(name, "none") != data.get(name, "none")
    ]
    return History(found.run, tuple(notes))


def _fitting(directory: Path, manifest: Manifest, pool: Pool) -> History:
    if manifest.simulated != pool.is_simulated:
        kind = {True: "simulated", False: "real"}
        then, now = kind[manifest.simulated], kind[pool.is_simulated]
        return History(NOTHING, (f"its answers were {then}, here they are {now}",))
    notes = answers_differ(manifest.answered_by, answered_by(pool))
    others = _others(manifest, pool)
    slower = _other_latency(manifest, pool) - others
    if slower:
        named = ", ".join(model for model in pool.models if model in slower)
        notes.append(f"{named} had another simulated latency")
    others |= slower
    run = earlier_in_subprocess(directory)
    own = tuple(one for one in run.episodes if one.model in pool.models and one.model not in others)
    if not own:
        notes = notes or ["it has no graded case of these models"]
    return History(msgspec.structs.replace(run, episodes=own), tuple(notes))


def _silent_models(pool: Pool, manifest: Manifest) -> frozenset[str] | None:
    """Models of which a run says nothing here; None where it says nothing of any."""
    if manifest.simulated != pool.is_simulated:
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
        if provider.api == "simulated"
        for model in provider.models
        for name in now
        if name.startswith(f"{provider.name}/{model.name} latency ") and then.get(name) != now[name]
    }


def hint_notes(expected: Iterable[Expected], hints: Mapping[str, Hint]) -> tuple[str, ...]:
    """What is supposed of cases that stand on hints.

    Args:
        expected: All planned episodes.
        hints: What was supposed of each case, by its id.
    """
    own = [(one, hints[one.case_id]) for one in expected if one.basis == "hint"]
    suites: dict[float, dict[str, None]] = {}
    for one, hint in own:
        suites.setdefault(hint.turns, {})[one.suite] = None
    notes = [
        f"turns of an episode are supposed to be {n:g} ({', '.join(named)})"
        for n, named in suites.items()
    ]
    silent = list(dict.fromkeys(one.model for one, hint in own if hint.is_assumed))
    if silent:
        notes.append(
            f"{ASSUMED_S:g} s a request is assumed, as the pool has no latency_hint_s, for "
            + ", ".join(silent)
        )
    return tuple(notes)


def said_of(item: pytest.Item, hint: Hint) -> Hint:
    """The hint with what the mark `ultrapar(expect=...)` of a test says of its episodes."""
    mark = item.get_closest_marker("ultrapar")
    said = mark.kwargs.get("expect") if mark is not None else None
    if said is None:
        return hint
    return replace(
        hint,
        turns=float(said.get("turns", hint.turns)),
        tokens_in=said.get("tokens_in", hint.tokens_in),
        tokens_out=said.get("tokens_out", hint.tokens_out),
    )
