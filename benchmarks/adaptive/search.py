"""The search for limits in adaptive mode: the real controllers and broker in virtual time."""

from __future__ import annotations

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.scenarios import SCENARIOS, SPAN_S, Scenario
from benchmarks.overhead.measurement import Measurement, Options, Rows, note


def search_round(options: Options) -> Rows:
    """Simulate every scenario, with a different seed in each round."""
    return {scenario.name: search(scenario, options.round_no) for scenario in SCENARIOS}


def search(scenario: Scenario, seed: int) -> dict[str, float]:
    """Simulate a scenario.

    `used` is the number of answers divided by the maximum that the provider can give; the time of
    the search is included. `refused` is the share of attempts answered with 429. `t90_s` is the
    time in seconds until the rate over ten seconds reaches 90 % of the best rate; infinity if it
    never does. `again_s` is the same time after the last change. `at_once` is the maximum number of
    requests in flight. `missed` is the number of missed aims.
    """
    note(f"search: {scenario.name}")
    found = LimitPlay(
        scenario.provider,
        ceiling=scenario.ceiling,
        seed=seed,
        span_s=SPAN_S,
        n_lanes=scenario.n_lanes,
        stall_s=scenario.stall_s,
    ).run()
    row: dict[str, float] = {
        "used": found.utilisation,
        "refused": found.refused,
        "t90_s": found.t90_s,
        "at_once": found.peak,
        "missed": sum(
            (
                found.utilisation < scenario.least_used,
                found.refused > scenario.most_refused,
                max(found.t90_s, found.recovery_s or 0.0) > scenario.most_t90_s,
                found.peak > scenario.ceiling,
            )
        ),
    }
    return row if found.recovery_s is None else row | {"again_s": found.recovery_s}


SEARCH = Measurement(
    search_round,
    f"search: {len(SCENARIOS)} providers in virtual time, {SPAN_S:g} s; one seed a round",
    warm_up=False,
)
