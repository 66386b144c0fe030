"""The plugin of `--ultrapar-plan`: says what a run would be, and starts nothing."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_ultrapar.analysis.earlier import earlier_in_subprocess
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.coordinator.days import day_lines, days_left, run_days, too_few
from pytest_ultrapar.coordinator.header import (
    ASSUMED_S,
    idle_workers,
    known_services,
    not_asked,
    pool_hints,
    process_loads,
    waste_of_pool,
)
from pytest_ultrapar.coordinator.policies import make_assignment
from pytest_ultrapar.coordinator.serial_sample import draw_sample, with_serial_sample
from pytest_ultrapar.errors import ConfigError, ResultsError, UltraparError
from pytest_ultrapar.plan.expectations import EarlierRun, expect, unjudged
from pytest_ultrapar.plan.run_plan import Way, contradictions, make_plan
from pytest_ultrapar.pool.model import answered_by
from pytest_ultrapar.pool.settings import MODES, PHASE, Mode
from pytest_ultrapar.report.plan_report import plan_lines
from pytest_ultrapar.report.text import counted, duration
from pytest_ultrapar.session import collection, process
from pytest_ultrapar.session.settings import read_offered, settle_policy
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST
from pytest_ultrapar.store.manifest import Manifest, answers_differ, read_manifest
from pytest_ultrapar.store.run_directory import DEFAULT_PARENT, LATEST, resolve_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.coordinator.run_gate import RunGate
    from pytest_ultrapar.plan.expectations import Expected, Hint
    from pytest_ultrapar.plan.run_plan import RunPlan
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case


MOST_RUNS = 20
"""Newest runs that are looked at: 20 of 560 cases take 0.05 s."""
ENOUGH = 0.9
"""Share of the cases of the best run from which a newer one is preferred to it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The run that a plan stands on.

    Attributes:
        directory: Of the run; absolute.
        n_looked_at: Runs among which it was chosen.
    """

    directory: Path
    n_looked_at: int


def choose_run(
    cases: Sequence[Case],
    silent_models: Callable[[Manifest], frozenset[str] | None],
    *,
    parent: Path = DEFAULT_PARENT,
) -> Chosen | None:
    """The newest run that covers most of the cases; None where none covers any.

    A run covers a case by the same case or one of the same test function and model, and counts
    with the share of its cases that were graded: one that was interrupted says little. Only
    manifests, planned cases and summaries are read.

    Args:
        cases: Those to be planned.
        silent_models: Models of which a run of that manifest says nothing; None: it says nothing
            of any.
        parent: Where runs lie, or directories of several runs; its `latest` may point elsewhere.
    """
    found = []
    newest = _newest(parent)
    for directory in newest:
        try:
            covered = _covered(directory, cases, silent_models)
        except ResultsError:
            continue
        found.append((covered, directory))
    most = max((covered for covered, _ in found), default=0.0)
    if most <= 0:
        return None
    directory = next(one for covered, one in found if covered >= ENOUGH * most)
    return Chosen(directory, len(newest))


def _newest(parent: Path) -> list[Path]:
    """Directories of runs, each once, the newest first."""
    began: dict[Path, float] = {}
    for manifest in (
        parent / LATEST / MANIFEST,
        *parent.glob(f"*/{MANIFEST}"),
        *parent.glob(f"*/*/{MANIFEST}"),
    ):
        try:
            began[manifest.parent.resolve()] = manifest.stat().st_mtime
        except OSError:
            continue
    return sorted(began, key=began.__getitem__, reverse=True)[:MOST_RUNS]


def _covered(
    directory: Path,
    cases: Sequence[Case],
    silent_models: Callable[[Manifest], frozenset[str] | None],
) -> float:
    summary = read_summary(directory)
    silent = silent_models(read_manifest(directory))
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
        if provider.is_simulated
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


_ALONE = "main"
_MANY = 4_000
"""A plan of more cases takes some seconds, and says early that it plans."""


class Planning(collection.CollectOnly):
    """Collects as a run would, and ends with the plan where that would begin."""

    def __init__(self, config: pytest.Config, n_workers: int, gate: RunGate | None) -> None:
        """Take the place of a run.

        Args:
            config: pytest's.
            n_workers: That the run would have; 0 for pytest's own process alone.
            gate: By which the run would be judged.

        Raises:
            ConfigError: An option is for runs only.
        """
        super().__init__(config)
        self._config = config
        self._options, self._pool = process.settings(config)
        self._redactor = process.redactor(self._pool)
        self._n_workers = n_workers
        self._gate = gate
        self._lines: list[str] = []
        if self._options.resume is not None:
            msg = "--ultrapar-plan plans a whole run; leave --ultrapar-resume away"
            raise ConfigError(msg)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check the suite and make the plan; what is inconsistent ends here with exit code 4."""
        collected = collection.collect(session.config, session.items)
        if collected.faults:
            raise pytest.UsageError(collection.faults_message(collected.faults))
        if process.stops_at_collection(session):
            return
        try:
            self._say_what_takes_long(len(collected.cases))
            lines = self._plan(session.items, collected.cases)
            self._lines = [self._redactor.text(line) for line in lines]
        except UltraparError as error:
            raise pytest.UsageError(self._redactor.text(str(error))) from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing; errors of collection are pytest's own to report."""
        return None if process.stops_at_collection(session) else True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the plan."""
        if self._lines:
            terminalreporter.section("ultrapar plan")
            for line in self._lines:
                terminalreporter.write_line(line, yellow=line.startswith("WARNING"))

    def _say_what_takes_long(self, n_cases: int) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and n_cases > _MANY:
            reporter.write_line(f"ultrapar: planning {counted(n_cases, 'case')} ...")
            reporter.flush()

    def _plan(self, items: Sequence[pytest.Item], collected: Sequence[Case]) -> list[str]:
        config, pool = self._config, self._pool
        if self._gate is not None:
            self._gate.check_cases(collected)
        cases = [case for case in collected if case.skipped is None]
        if not cases:
            return ["nothing to plan: no selected test asks a model"]
        given = self._options.plan_from
        history = find_history(given, pool, process.data(config), cases)
        hints = pool_hints(pool)
        said = {case.case_id: said_of(items[case.index], hints[case.model]) for case in cases}
        expected = expect(cases, history.run.episodes, lambda case: said[case.case_id])
        services = known_services(hints, expected)
        lanes = process.lanes(config)
        refused = contradictions(
            pool,
            lanes,
            expected,
            services,
            episode_timeout_s=self._options.episode_timeout_s,
        )
        if refused:
            raise ConfigError("\n".join(f"--ultrapar-plan: {one}" for one in refused))
        plan = make_plan(
            pool,
            lanes,
            expected,
            history.run,
            [self._way(mode, cases) for mode in MODES if self._has_a_say(mode, cases)],
            mode=self._options.mode,
        )
        days, short_days = self._days(lanes, expected)
        reporter = config.pluginmanager.getplugin("terminalreporter")
        n_skipped = len(collected) - len(cases)
        skipped = [f"{counted(n_skipped, 'case')} skipped by a mark"] if n_skipped else []
        return plan_lines(
            plan,
            sources=[*history.notes, *hint_notes(expected, said), *_ceilings(pool), *days],
            settings=[*self._settings(), *skipped, *not_asked(collection.taken(config))],
            warnings=[
                *self._not_ready(),
                *waste_of_pool(
                    pool,
                    lanes,
                    Counter(one.model for one in expected),
                    services,
                    mode=self._options.mode,
                ),
                *short_days,
                *unjudged(pool, lanes, expected),
                *self._run_waste(plan),
            ],
            simulated=pool.is_simulated,
            width=reporter._tw.fullwidth if reporter else 100,  # noqa: SLF001 - pytest 9.2.0, terminal.py:405
        )

    def _days(
        self, lanes: Sequence[Lane], expected: Sequence[Expected]
    ) -> tuple[list[str], list[str]]:
        """What limits per day have left, and where the cases need more."""
        try:
            counted = run_days(self._pool, lanes, os.environ, self._options.simulator)
        except ConfigError as error:
            # A plan needs no keys, but the memory of a day goes by them.
            return [], [f"nobody knows what limits per day have left: {error}"]
        left = days_left(self._pool, counted, MonotonicClock(), claim=False)
        requests: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for one in expected:
            requests[one.model] += len(one.services_s)
            tokens[one.model] += math.ceil((one.tokens_in or 0) + (one.tokens_out or 0))
        needed = {"requests": requests, "tokens": tokens}
        return [*day_lines(left)], [*too_few(lanes, left, needed, how="some")]

    def _way(self, mode: Mode, cases: Sequence[Case]) -> Way:
        """What a mode would make of the cases; the mode in force may not fail."""
        policy = ""
        try:
            policy = self._policy(mode)
            lanes = process.lanes(self._config)
            made = make_assignment(
                self._config,
                workers=[f"gw{n}" for n in range(self._n_workers)] or [_ALONE],
                lanes=lanes,
                cases=cases,
                policy=policy,
                mode=mode,
            )
            loads = process_loads(
                self._config, lanes=lanes, cases=cases, assignment=made, mode=mode
            )
            n_baseline = self._options.baseline
            if mode == self._options.mode and n_baseline is not None:
                sample = draw_sample(cases, n_baseline, self._options.seed)
                made = with_serial_sample(made, cases, lanes, sample)
        except (UltraparError, pytest.UsageError) as error:
            if mode == self._options.mode:
                raise
            return Way(mode, policy, None, str(error))
        return Way(mode, policy, made, processes=loads)

    def _has_a_say(self, mode: str, cases: Sequence[Case]) -> bool:
        """Whether a mode concerns the cases: phases are those of the suites that have processes."""
        hook = self._config.hook.pytest_ultrapar_process
        if mode != PHASE or mode == self._options.mode or not hook.get_hookimpls():
            return True
        return any(hook(config=self._config, case=case) is not None for case in cases)

    def _policy(self, mode: Mode) -> str:
        if mode == self._options.mode:
            return self._options.policy
        # What conftests offer for mode ultra is never its default.
        answers = (
            self._config.hook.pytest_ultrapar_policies(config=self._config, mode=mode)
            if mode == PHASE
            else ()
        )
        return settle_policy(None, mode=mode, offered=read_offered(answers))

    def _settings(self) -> Iterator[str]:
        """What a run would be started with, as far as the tables do not say it."""
        if self._n_workers:
            yield f"for {counted(self._n_workers, 'worker')}"
        if self._options.baseline is not None:
            yield f"{counted(self._options.baseline, 'case')} of it one at a time first"

    def _not_ready(self) -> Iterator[str]:
        """What would end a run at its start, and does not matter to a plan."""
        try:
            process.check_keys(self._config)
        except ConfigError as error:
            yield f"a run would end at once: {error}"

    def _run_waste(self, plan: RunPlan) -> Iterator[str]:
        forecast = plan.chosen.forecast
        if forecast is None:
            return
        yield from idle_workers(self._n_workers, forecast.peak_in_flight, mode=plan.mode)
        timeout_s = self._options.episode_timeout_s
        if forecast.longest_s > timeout_s:
            yield (
                f"the longest episode would take {duration(forecast.longest_s)}, waiting included, "
                f"and end at --ultrapar-episode-timeout {timeout_s:g}; raise it"
            )
        if forecast.refused:
            yield f"{counted(len(forecast.refused), 'case')} have no lane in mode {plan.mode}"


def _ceilings(pool: Pool) -> Iterator[str]:
    looked = [each.name for each in pool.providers if each.rate_mode == "adaptive"]
    if looked:
        yield (
            f"limits of {', '.join(looked)} would be estimated: the figures use their ceilings,"
            " so a run may take much longer"
        )
