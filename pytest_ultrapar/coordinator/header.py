"""The lines that describe a run before it begins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.plan.expectations import Hint
from pytest_ultrapar.analysis.plan.load import KeyLoad, key_load
from pytest_ultrapar.analysis.plan.waste import Service, waste
from pytest_ultrapar.coordinator.daily_limits_left import begun_days, day_lines, too_few
from pytest_ultrapar.engine.file_descriptors import most_connections
from pytest_ultrapar.pool.keys import sent_lines
from pytest_ultrapar.pool.model import Latency, answered_by
from pytest_ultrapar.pool.providers import mean_s
from pytest_ultrapar.pool.setting_values import effective
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME, SETTINGS
from pytest_ultrapar.records import Case, by_key
from pytest_ultrapar.report.text import counted, duration, listed
from pytest_ultrapar.session import collection, required_internals, run_config, selection
from pytest_ultrapar.session.answer_source import source_of
from pytest_ultrapar.session.xdist_options import enough_workers
from pytest_ultrapar.store.cases_file import read_generated, read_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pytest

    from pytest_ultrapar.analysis.plan.expectations import Expected
    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.coordinator.run import Run
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.pool.settings import Options
    from pytest_ultrapar.store.cases_file import Generated, Shared

ASSUMED_S = 1.0
"""The assumed duration of a request in seconds, if the pool states no latency for its model."""
_SHOWN = 3
_SHOWN_KEYS = 8
_NOT_OF_THE_FILE = ("command line ", "environment ", "prompt types")
"""Parts of a value's origin. Each means that the value does not come from the pool file."""
_PLAIN = [f"(environment {row.variable}" for row in SETTINGS if len(row.variables) > 1]
"""How a value's origin begins if the value comes from a variable that other programs may also
read."""


def lines(run: Run) -> Iterator[str]:
    """The header of a run: its pool, its settings, and earlier runs that it continues or uses."""
    yield from settings_lines(run.options, run.pool, run.lanes)
    yield from required_internals.untested()
    if (again := selection.again(run.config)) is not None:
        n = counted(len(again.ids), "case")
        yield f"only cases that ended as {run.options.only} in run {again.run_id}: {n}"
    if run.services.faults is not None:
        yield f"the simulated provider fails as {run.services.faults.path} specifies"
    if run.regraded is not None:
        episodes = counted(len(run.recovered), "episode")
        yield f"grading {episodes} of run {run.regraded.run_id} again: nothing is sent"
    if run.replayed is not None:
        misses = "missing answers are requested" if run.source.sends else "nothing is sent"
        yield f"replaying the answers of run {run.replayed.run_id}: {misses}"
    if run.options.resume is not None:
        finished = counted(len(run.recovered), "finished episode")
        lost = f"; {counted(run.n_lost, 'unreadable one')} to be run again" if run.n_lost else ""
        yield f"resuming {run.directory.run_id}: {finished} resumed{lost}{_begun(run)}"
        if run.resumed is not None and run.resumed.record != run.options.record:
            yield (
                f"--ultrapar-record was '{run.resumed.record}' so far, and is "
                f"'{run.options.record}' from now on"
            )


def _begun(run: Run) -> str:
    """A phrase that says how interrupted conversations are continued or repeated; may be empty."""
    cut_off, earlier = run.cut_off, run.resumed
    if cut_off is None or earlier is None or not run.source.sends:
        return ""
    if n_begun := cut_off.n_begun:
        return f"; {counted(n_begun, 'conversation')} interrupted: stored answers are used first"
    if cut_off.n_cases and earlier.record != "full":
        return (
            f"; {counted(cut_off.n_cases, 'case')} interrupted, to be started again, because "
            f"--ultrapar-record {earlier.record} stores no answers"
        )
    return ""


def settings_lines(options: Options, pool: Pool, lanes: tuple[Lane, ...]) -> Iterator[str]:
    """Lines about the pool, the mode, models, lanes, seats, and values set outside the pool file.

    Args:
        options: The options in effect.
        pool: The pool.
        lanes: The lanes that serve a selected model or a role.
    """
    said = [
        f"{value.name} = {value.value} ({value.origin})"
        for value in (*pool.effective, *effective(options))
        if any(words in value.origin for words in _NOT_OF_THE_FILE)
        and ", shard " not in value.origin
    ]
    plain = [text for text in said if any(one in text for one in _PLAIN)]
    if plain:
        yield (
            f"the environment changes this run: {', '.join(plain)}; ULTRAPAR_... variables take "
            "precedence over these"
        )
    simulated = " SIMULATED," if pool.is_simulated else ""
    sample = "" if options.sample is None else f", sample {options.sample}"
    models = {lane.model for lane in lanes}
    n_beside = len(models & pool.caseless)
    beside = f" and {n_beside} in roles only" if n_beside else ""
    roles = "".join(f", role {role} is {model}" for role, model in pool.roles.items())
    yield (
        f"pool {pool.path},{simulated} mode {options.mode}, policy {options.policy}, "
        f"{pool.rate_mode} limits, seed {options.seed}{sample}"
    )
    yield (
        f"{counted(len(models) - n_beside, 'model')}{beside}, {counted(len(lanes), 'lane')}, "
        f"{_seats(pool.seats(lanes))}, {_repeats(options)}{roles}"
    )
    if others := [text for text in said if text not in plain]:
        yield ", ".join(others)
    yield from shard_lines(options, pool)
    if not source_of(options).sends:
        return
    # The header is printed before the tests are collected, so it is unknown whether any case runs.
    yield from (f"when a case runs, {line}" for line in sent_lines(pool, lanes))
    as_one = list(dict.fromkeys(lane.listed_as for lane in lanes if lane.listed_as))
    if as_one:
        yield f"counted as one key: {listed(as_one, _SHOWN_KEYS)}"


def shard_lines(options: Options, pool: Pool) -> Iterator[str]:
    """Lines about this shard: its part of the run, and its part of each limit."""
    shard = options.shard
    if shard is None:
        return
    yield f"shard {shard}: its own cases only, {_limits_of(options)}"
    parts = [
        f"{one.name} = {one.value:g} ({one.origin})"
        for one in pool.effective
        if isinstance(one.value, int | float) and f", shard {shard} of " in one.origin
    ]
    if parts:
        elsewhere = " in manifest.json" if len(parts) > _SHOWN_KEYS else ""
        yield f"{listed(parts, _SHOWN_KEYS)}{elsewhere}"


def part_size(options: Options, n_cases: int, generated: Generated | None) -> Iterator[str]:
    """A line that says how many of all cases are in this shard or sample."""
    if generated is not None:
        size = f"{n_cases:,} of {generated.n_cases:,} cases"
        if options.shard is not None:
            yield f"shard {options.shard}: {size}, {_limits_of(options)}"
        else:
            yield f"sample {options.sample}: {size}"


def _limits_of(options: Options) -> str:
    if options.divided_by is None:
        return f"limits shared by all hosts of run {options.cluster_run}"
    return f"limits divided by {options.divided_by.n}"


def _repeats(options: Options) -> str:
    text = counted(options.repeats.n, "repetition")
    n_first = options.repeats.n_first
    if n_first is None:
        return text
    return (
        f"{text} of the first {n_first} values of the parameter that the suite names (of all "
        "values if there are fewer)"
    )


def _seats(n: int | None) -> str:
    return counted(n, "seat") if n is not None else "unlimited seats"


def assignment_lines(
    run: Run, assignment: Assignment, workers: Sequence[str], cases: Sequence[Case]
) -> Iterator[str]:
    """Lines about the run's directory, its workers' homes, its cases, and its daily limits."""
    yield f"results in {run.directory.path}"
    declared = answered_by(run_config.settings(run.config)[1])
    for model, who in answered_by(run.pool).items():
        if who != declared[model]:
            yield f"{model}: its server reports {who}"
    if run.keys is not None and run.keys.waited_for:
        yield f"waited {duration(run.keys.waited_s)} for {run.keys.waited_for}"
    by_home = by_key((assignment.home.get(worker, ()), worker) for worker in workers)
    parts = [f"{_span(own)}: {_place(run, home)}" for home, own in by_home.items()]
    if (n_more := len(parts) - _SHOWN) > 1 and run.config.option.verbose < 1:
        parts[_SHOWN:] = [f"{n_more} more in assignment.json (all with -v)"]
    yield f"{counted(run.planned, 'case')}; " + "; ".join(parts)
    yield from part_size(run.options, run.planned, read_generated(run.directory.path))
    yield from not_asked(read_shared(run.directory.path))
    sample = run.manifest.serial_sample if run.manifest is not None else ()
    if sample and run.options.resume is None:
        yield (
            f"a serial sample of {counted(len(sample), 'case')} runs first, one at a time; "
            f"the speed of the other {run.planned - len(sample):,} is compared with the sample's"
        )
    else:
        loads = process_loads(
            run.config, lanes=run.lanes, cases=cases, assignment=assignment, mode=run.options.mode
        )
        if loads:
            from pytest_ultrapar.report.plan_report import key_lines  # noqa: PLC0415 - rare

            yield from key_lines(loads)
    groups = [f"{one.name} ({len(one.cases)})" for one in assignment.groups]
    if groups:
        yield f"cases in {counted(len(groups), 'group')}: {listed(groups, _SHOWN)}"
    yield from day_lines(run.days)
    if run.pool.has_budget:
        from pytest_ultrapar.coordinator.spending import budget_lines  # noqa: PLC0415 - few runs have a budget

        yield from budget_lines(run.pool, run.directory.path)


def warnings(run: Run, workers: Sequence[str], cases: Sequence[Case]) -> Iterator[str]:
    """Warnings that a user should see before the first request."""
    yield from run.notes
    yield from begun_days(run.days)
    if not run.source.sends:
        return
    yield from _short_days(run, cases)
    seats = run.pool.seats(run.lanes)
    if run.options.mode not in ONE_AT_A_TIME and not is_by_hand(run.config):
        # As in a plan, but with the service times in the pool, because this reads no earlier run.
        services = known_services(pool_hints(run.pool), ())
        yield from waste(run.pool, run.lanes, services)
        yield from idle_workers(len(workers), most_in_flight(seats, len(cases)))
    if seats is not None and (most := len(workers) * most_connections(seats)) < seats:
        yield (
            f"about {most} of the {seats} seats can be used at once: the limit on open files "
            "allows no more connections; raise that limit (ulimit -n)"
        )


def _span(workers: Sequence[str]) -> str:
    return workers[0] if len(workers) == 1 else f"{workers[0]}-{workers[-1]}"


def _place(run: Run, home: tuple[LaneId, ...]) -> str:
    lanes = tuple(lane for lane in run.pool.lanes if lane.lane_id in set(home))
    if not lanes:
        return "all lanes"
    seats = run.pool.seats(lanes)
    n_keys = {provider.name: len(provider.keys) for provider in run.pool.providers}
    # If a provider has several keys, name its lanes after their keys, otherwise after instances.
    names = list(
        dict.fromkeys(
            f"{lane.provider}/{lane.key if n_keys[lane.provider] > 1 else lane.instance}"
            for lane in lanes
        )
    )
    return f"{listed(names, _SHOWN)} ({_seats(seats)})"


def process_loads(
    config: pytest.Config,
    *,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    assignment: Assignment,
    mode: str,
) -> tuple[KeyLoad, ...]:
    """Return the load on each key from the processes in which the original scripts ran the cases.

    Returns:
        The loads. The tuple is empty if no suite names such processes, or if the mode runs one case
        at a time. It is also empty if no case waits for other cases or for a key. All processes
        then use all keys, and a sum per key would mean nothing.
    """
    if not assignment.groups or mode in ONE_AT_A_TIME:
        return ()
    names = {
        case.case_id: config.hook.pytest_ultrapar_process(config=config, case=case)
        for case in cases
    }
    own = [case for case in cases if names[case.case_id] is not None]
    pool = run_config.settings(config)[1]
    loads = key_load(pool, lanes, own, assignment, process_of=lambda case: names[case.case_id])
    return tuple(load for load in loads if load.processes)


def _short_days(run: Run, cases: Sequence[Case]) -> Iterator[str]:
    """Sentences about models whose daily limits leave less than one request per case."""
    if not run.days:
        return
    yield from too_few(
        run.pool,
        run.lanes,
        run.days,
        {"requests": run.to_ask(cases).cases},
        how="at least",
        again="--ultrapar-resume" if run.cluster is None else "ultrapar cluster reopen",
    )


def not_asked(shared: Iterable[Shared]) -> Iterator[str]:
    """A line for each suite that uses existing answers instead of sending requests."""
    for one in shared:
        how = "shared with other suites of this run" if one.here else "reused from the earlier run"
        n = len(one.here) + len(one.reused)
        yield f"{one.suite}: {counted(n, 'case')} not sent, because their answers are {how}"


class CollectOnlyHeader(collection.CollectOnly):
    """Collects tests as a run does, but runs no test."""

    def pytest_report_header(self) -> list[str]:
        """Return the lines about the pool and the models of the listed cases."""
        options, pool = run_config.settings(self._config)
        lines = settings_lines(options, pool, run_config.lanes(self._config))
        plain = run_config.redactor(pool).text
        return [plain(f"ultrapar: {line}") for line in lines]


# -- unused parts of a pool ------------------------------------------------------------------------


def is_by_hand(config: pytest.Config) -> bool:
    """Whether the user selected particular tests. Users rarely adapt the pool to such a run."""
    picked = (config.getoption(name, None) for name in ("keyword", "markexpr", "lf", "deselect"))
    return any(picked) or selection.again(config) is not None or any("::" in x for x in config.args)


def idle_workers(n_workers: int, most: int) -> Iterator[str]:
    """A warning if some workers have nothing to do.

    Args:
        n_workers: The number of processes that run tests.
        most: The maximum number of requests in flight.
    """
    if n_workers > most:
        yield (
            f"{n_workers} workers for at most {counted(most, 'request')} in flight; "
            f"-n {enough_workers(most, n_workers)} is as fast and starts sooner"
        )


def most_in_flight(seats: int | None, n_cases: int) -> int:
    """The maximum number of requests in flight, given the seats (None: unlimited) and the cases."""
    return n_cases if seats is None else min(seats, n_cases)


def pool_hints(pool: Pool) -> dict[str, Hint]:
    """Return the duration of a request to each model as the pool states it, or an assumed one.

    If several providers serve a model, the slowest of them counts.
    """
    found: dict[str, Hint] = {}
    for provider in pool.providers:
        for model in provider.models:
            if provider.is_simulated:
                own = Hint(1.0, model.simulation.latency)
            else:
                own = Hint(
                    1.0,
                    Latency("fixed", model.latency_hint_s or ASSUMED_S),
                    is_assumed=model.latency_hint_s is None,
                )
            known = found.get(model.name)
            if known is None or known.latency.median_s < own.latency.median_s:
                found[model.name] = own
    return found


def known_services(hints: Mapping[str, Hint], expected: Sequence[Expected]) -> dict[str, Service]:
    """Return the expected duration of a request to each model, or else the hint's duration."""
    sums = by_key((one.model, each_s) for one in expected for each_s in one.services_s)
    seen = {one.model for one in expected if one.basis != "hint"}
    return {
        model: Service(
            math.fsum(sums[model]) / len(sums[model]) if model in seen else mean_s(hint.latency),
            is_assumed=hint.is_assumed and model not in seen,
        )
        for model, hint in hints.items()
    }
