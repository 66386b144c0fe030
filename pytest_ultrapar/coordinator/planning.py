"""The plugin for `--ultrapar-plan`: it forecasts a run and starts nothing."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_ultrapar.analysis.plan.expectations import expect, unjudged, without_roles
from pytest_ultrapar.analysis.plan.run_plan import ModeOption, contradictions, make_plan
from pytest_ultrapar.analysis.plan.waste import Service, more_seats_than_cases, waste
from pytest_ultrapar.coordinator import daily_limits_left, header
from pytest_ultrapar.coordinator.earlier_run import find_history
from pytest_ultrapar.coordinator.policies import make_assignment
from pytest_ultrapar.coordinator.serial_sample import draw_sample, with_serial_sample
from pytest_ultrapar.errors import ConfigError, UltraparError, refuse
from pytest_ultrapar.pool.settings import MODES, ONE_AT_A_TIME, PHASE, Mode
from pytest_ultrapar.records import Case, by_key
from pytest_ultrapar.report.plan_report import plan_lines, short_of_money
from pytest_ultrapar.report.text import counted, duration
from pytest_ultrapar.session import collection, run_config, selection
from pytest_ultrapar.session.options import usage_errors
from pytest_ultrapar.session.settings import read_offered, settle_policy
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.analysis.plan.expectations import Expected, Hint
    from pytest_ultrapar.analysis.plan.run_plan import RunPlan
    from pytest_ultrapar.coordinator.run_gate import RunGate
    from pytest_ultrapar.pool.model import Lane, Pool

_ALONE = "main"
_MANY = 4_000
"""A plan for more cases than this takes a few seconds, so print a line before it starts."""


class Planning(collection.CollectOnly):
    """Collects tests as a run does, and prints the plan instead of starting the run."""

    def __init__(self, config: pytest.Config, n_workers: int, gate: RunGate | None) -> None:
        """Prepare the plan that replaces the run.

        Args:
            config: The configuration of pytest.
            n_workers: The number of xdist workers in the run; 0 if there is only pytest's own
                process.
            gate: The run's gate; None if the run has no gate.

        Raises:
            ConfigError: An option cannot be used with a plan.
        """
        super().__init__(config)
        self._config = config
        self._options, self._pool = run_config.settings(config)
        self._redactor = run_config.redactor(self._pool)
        self._n_workers = n_workers
        self._gate = gate
        self._lines: list[str] = []
        if self._options.resume is not None:
            refuse("--ultrapar-plan plans a whole run; leave out --ultrapar-resume")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check the suite and make the plan; if the suite has an error, end with exit code 4."""
        with usage_errors():
            collected = collection.collect(session.config, session.items)
        if run_config.stops_at_collection(session):
            return
        try:
            self._say_what_takes_long(len(collected.cases))
            lines = self._plan(session.items, collected.cases)
            self._lines = [self._redactor.text(line) for line in lines]
        except UltraparError as error:
            raise pytest.UsageError(self._redactor.text(str(error))) from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run no test. If there were errors during collection, let pytest report them."""
        return None if run_config.stops_at_collection(session) else True

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
            return ["nothing to plan: no selected test sends a request"]
        given = self._options.plan_from
        history = find_history(given, pool, run_config.data(config), cases)
        hints = header.pool_hints(pool)
        said = {case.case_id: said_of(items[case.index], hints[case.model]) for case in cases}
        expected = expect(
            cases,
            history.run.episodes,
            lambda case: said[case.case_id],
            roles={role: (model, hints[model]) for role, model in pool.roles.items()},
            known=history.run.roles,
        )
        services = header.known_services(hints, expected)
        lanes = run_config.lanes(config)
        refused = contradictions(
            pool, lanes, expected, services, episode_timeout_s=self._options.episode_timeout_s
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
            settings=[
                *self._settings(),
                *self._shard(len(collected)),
                *skipped,
                *header.not_asked(selection.shared(config)),
            ],
            warnings=[
                *self._not_ready(cases),
                *self._pool_waste(lanes, expected, services),
                *short_days,
                *unjudged(pool, lanes, expected),
                *self._run_waste(plan),
                *short_of_money(plan),
            ],
            simulated=pool.is_simulated,
            width=config.get_terminal_writer().fullwidth if reporter else 100,
        )

    def _days(
        self, lanes: Sequence[Lane], expected: Sequence[Expected]
    ) -> tuple[list[str], list[str]]:
        """Lines about what remains of daily limits, and warnings if that is not enough."""
        try:
            simulator, shard = self._options.simulator, str(self._options.divided_by or "")
            counted = daily_limits_left.run_days(self._pool, lanes, os.environ, simulator, shard)
        except ConfigError as error:
            # A plan needs no keys, but the counts of daily limits are stored by key.
            return [], [f"cannot read how much of the daily limits is left: {error}"]
        left = daily_limits_left.days_left(self._pool, counted, MonotonicClock(), claim=False)
        requests: Counter[str] = Counter()
        tokens: Counter[str] = Counter()
        for one in expected:
            requests[one.model] += len(one.services_s)
            tokens[one.model] += math.ceil((one.tokens_in or 0) + (one.tokens_out or 0))
        needed = {"requests": requests, "tokens": tokens}
        short = daily_limits_left.too_few(self._pool, lanes, left, needed, how="about")
        return [*daily_limits_left.day_lines(left), *daily_limits_left.begun_days(left)], [*short]

    def _way(self, mode: Mode, cases: Sequence[Case]) -> ModeOption:
        """Return how a mode assigns the cases, or why it cannot run them.

        If the selected mode cannot run them, the error is raised instead.
        """
        policy = ""
        try:
            policy = self._policy(mode)
            lanes = run_config.case_lanes(self._config)
            made = make_assignment(
                self._config,
                workers=[f"gw{n}" for n in range(self._n_workers)] or [_ALONE],
                lanes=lanes,
                cases=cases,
                policy=policy,
                mode=mode,
            )
            loads = header.process_loads(
                self._config, lanes=lanes, cases=cases, assignment=made, mode=mode
            )
            n_sample = self._options.baseline
            if mode == self._options.mode and n_sample is not None:
                sample = draw_sample(cases, n_sample, self._options.seed)
                made = with_serial_sample(made, cases, lanes, sample)
        except (UltraparError, pytest.UsageError) as error:
            if mode == self._options.mode:
                raise
            return ModeOption(mode, policy, None, str(error))
        return ModeOption(mode, policy, made, processes=loads)

    def _has_a_say(self, mode: str, cases: Sequence[Case]) -> bool:
        """Whether the plan includes a mode.

        Mode phase is included if it is selected, or if a suite names a process of its original
        scripts for any of the cases. If no suite has the hook that names processes, mode
        phase is included if a conftest offers a policy for it. The other modes are always included.
        """
        if mode != PHASE or mode == self._options.mode:
            return True
        hook = self._config.hook.pytest_ultrapar_process
        if not hook.get_hookimpls():
            return bool(self._phase_policies())
        return any(hook(config=self._config, case=case) is not None for case in cases)

    def _policy(self, mode: Mode) -> str:
        if mode == self._options.mode:
            return self._options.policy
        # In mode ultra, a conftest's policy is never the default.
        offered = self._phase_policies() if mode == PHASE else []
        return settle_policy(None, mode=mode, offered=offered)

    def _phase_policies(self) -> list[str]:
        hook = self._config.hook.pytest_ultrapar_policies
        return read_offered(hook(config=self._config, mode=PHASE))

    def _settings(self) -> Iterator[str]:
        """Lines about those settings of the run that the plan's tables do not show."""
        if self._n_workers:
            yield f"for {counted(self._n_workers, 'worker')}"
        if self._options.baseline is not None:
            yield f"a serial sample of {counted(self._options.baseline, 'case')} runs first"

    def _shard(self, n_cases: int) -> Iterator[str]:
        """Lines about the shard or sample to which the plan is restricted, if any."""
        generated = self._config.stash.get(selection.generated_key, None)
        yield from header.part_size(self._options, n_cases, generated)
        yield from (*header.shard_lines(self._options, self._pool),)[1:]

    def _not_ready(self, cases: Sequence[Case]) -> Iterator[str]:
        """Errors that do not affect a plan, but would stop a run at its start."""
        try:
            run_config.check_keys(self._config, run_config.asked_pool(self._config, cases))
        except ConfigError as error:
            yield f"a run would fail to start: {error}"

    def _pool_waste(
        self, lanes: Sequence[Lane], expected: Sequence[Expected], services: Mapping[str, Service]
    ) -> tuple[str, ...]:
        if self._options.mode in ONE_AT_A_TIME:
            return ()
        n_cases = Counter(one.model for one in without_roles(expected))
        pool = self._pool
        return (*more_seats_than_cases(pool, lanes, n_cases), *waste(pool, lanes, services))

    def _run_waste(self, plan: RunPlan) -> Iterator[str]:
        forecast = plan.chosen.forecast
        if forecast is None:
            return
        if plan.mode not in ONE_AT_A_TIME:
            yield from header.idle_workers(self._n_workers, forecast.peak_in_flight)
        timeout_s = self._options.episode_timeout_s
        if forecast.longest_s > timeout_s:
            yield (
                f"the longest episode would take {duration(forecast.longest_s)} including waits, "
                f"but --ultrapar-episode-timeout {timeout_s:g} would end it sooner: raise it"
            )
        if forecast.refused:
            yield f"mode {plan.mode} has no lane for {counted(len(forecast.refused), 'case')}"


def _ceilings(pool: Pool) -> Iterator[str]:
    looked = [each.name for each in pool.providers if each.rate_mode == "adaptive"]
    if looked:
        yield (
            f"a run would estimate the limits of {', '.join(looked)}; these figures use the "
            "maximum of each limit, so a run may take much longer"
        )


def said_of(item: pytest.Item, hint: Hint) -> Hint:
    """Return the hint, updated with any values from the test's mark `ultrapar(expect=...)`."""
    said = collection.marked(item, "expect")
    if said is None:
        return hint
    return msgspec.structs.replace(
        hint,
        turns=float(said.get("turns", hint.turns)),
        tokens_in=said.get("tokens_in", hint.tokens_in),
        tokens_out=said.get("tokens_out", hint.tokens_out),
    )


def hint_notes(expected: Iterable[Expected], hints: Mapping[str, Hint]) -> tuple[str, ...]:
    """Sentences about what the plan assumes for cases that no earlier run has measured.

    Args:
        expected: All planned episodes.
        hints: The hint for each case, by its id.
    """
    in_roles = {one.role: one.model for one in expected if one.role and one.basis == "hint"}
    supposed = [(one, hints[one.case_id]) for one in without_roles(expected) if one.basis == "hint"]
    suites = by_key((hint.turns, one.suite) for one, hint in supposed)
    notes = [
        f"turns per episode are assumed to be {n:g} "
        f"({'suite' if len({*named}) == 1 else 'suites'} {', '.join(dict.fromkeys(named))})"
        for n, named in suites.items()
    ]
    notes += [
        f"one request to role {role} ({model}) is assumed for each case without measurements"
        for role, model in in_roles.items()
    ]
    silent = list(dict.fromkeys(one.model for one, hint in supposed if hint.is_assumed))
    if silent:
        notes.append(
            f"{', '.join(silent)}: {header.ASSUMED_S:g} s per request is assumed, because the pool "
            "states no latency_hint_s"
        )
    return tuple(notes)
