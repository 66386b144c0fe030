"""How well adaptive mode finds limits: production controllers and broker in virtual time."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.scenarios import SCENARIOS, SPAN_S, Scenario
from benchmarks.overhead.command_line import note
from benchmarks.overhead.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.adaptive.play import Outcome
    from benchmarks.overhead.command_line import Found, Options


SEEDS = 5


class Searched(msgspec.Struct, frozen=True):
    """What came of one scenario over all seeds; each pair is (median, worst).

    Attributes:
        used: Answers / what the provider would have given at best, the search included.
        refused: Share of attempts answered 429.
        t90_s: Seconds to ten seconds at 90 % of the best; infinity for never.
        again_s: The same after the last change; None without a change.
        seats: Requests at once, the most of all seeds.
        ceiling: What they must not pass.
    """

    name: str
    n: int
    used: tuple[float, float]
    refused: tuple[float, float]
    t90_s: tuple[float, float]
    again_s: tuple[float, float] | None
    seats: int
    ceiling: int
    aims_met: bool | None


def measure_searches(options: Options) -> Found:
    """Play every scenario, with a seed for each run that is asked for."""
    found = [search(scenario, options.runs or SEEDS) for scenario in SCENARIOS]
    return search_lines(found), found


def search(scenario: Scenario, seeds: int) -> Searched:
    """Play a scenario with each seed."""
    note(f"search: {scenario.name}")
    outcomes = [
        LimitPlay(
            scenario.provider,
            ceiling=scenario.ceiling,
            seed=seed,
            span_s=SPAN_S,
            n_lanes=scenario.n_lanes,
            stall_s=scenario.stall_s,
        ).run()
        for seed in range(seeds)
    ]
    return _searched(scenario, outcomes)


def search_lines(found: Sequence[Searched]) -> Iterator[str]:
    """A table of all scenarios, median and worst of the seeds."""
    yield (
        f"search: {len(found)} providers in virtual time, {SPAN_S:g} s, {found[0].n} seeds,"
        " median and worst, simulated"
    )
    header = ["provider bears", "used", "worst", "429", "worst", "90 % after", "worst"]
    header += ["after change", "worst", "at once", "ceiling", "aims"]
    yield from table(header, [_row(one) for one in found])


def _row(one: Searched) -> list[str]:
    again = [f"{value:.1f} s" for value in one.again_s] if one.again_s is not None else ["", ""]
    aims = {None: "none", True: "met", False: "MISSED"}[one.aims_met]
    return [
        one.name,
        *(f"{value:.3f}" for value in one.used),
        *(f"{value * 100:.2f} %" for value in one.refused),
        *(f"{value:.1f} s" for value in one.t90_s),
        *again,
        str(one.seats),
        str(one.ceiling),
        aims,
    ]


def _searched(scenario: Scenario, outcomes: Sequence[Outcome]) -> Searched:
    used = [one.utilisation for one in outcomes]
    refused = [one.refused for one in outcomes]
    t90_s = [one.t90_s for one in outcomes]
    again_s = [one.recovery_s for one in outcomes if one.recovery_s is not None]
    seats = max(one.peak for one in outcomes)
    has_aims = scenario.least_used > 0 or scenario.most_t90_s < math.inf
    met = (
        min(used) >= scenario.least_used
        and max(refused) <= scenario.most_refused
        and max([*t90_s, *again_s]) <= scenario.most_t90_s
        and seats <= scenario.ceiling
    )
    return Searched(
        name=scenario.name,
        n=len(outcomes),
        used=(statistics.median(used), min(used)),
        refused=(statistics.median(refused), max(refused)),
        t90_s=(statistics.median(t90_s), max(t90_s)),
        again_s=(statistics.median(again_s), max(again_s)) if again_s else None,
        seats=seats,
        ceiling=scenario.ceiling,
        aims_met=met if has_aims else None,
    )
