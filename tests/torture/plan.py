"""The plan of a round: all random choices, drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.torture.kinds import Kind, Moment

SECOND_FAULT_SHARE = 0.3


@dataclass(frozen=True)
class Strike:
    """One fault in one session.

    Attributes:
        moment: The sign for which the fault waits.
        share: For moments such as `some asked`: the share of the remaining work.
        delay_s: The delay after that sign.
        which: Picks a victim among several, 0 to 1.
        gap_s: The time between two signals, or for which a victim is stopped.
        directly: Whether only the controller gets the signal, not its process group.
    """

    moment: Moment
    share: float
    delay_s: float
    which: float
    gap_s: float
    directly: bool


@dataclass(frozen=True)
class Plan:
    """A round.

    Attributes:
        strikes: One for the first session, the next for the session that resumes it.
        workers: pytest's `-n`.
        n_cases: Planned cases.
        turns: Requests of a case.
        keys: Keys of the pool.
        seats: Requests in flight that each key allows.
        latency_s: The median latency of an answer.
        body_s: The time of a test besides its episode.
        resume_once_more: Whether the complete run is resumed again, which must send nothing.
    """

    seed: int
    kind: Kind
    strikes: tuple[Strike, ...]
    workers: int
    n_cases: int
    turns: int
    keys: int
    seats: int
    latency_s: float
    body_s: float
    resume_once_more: bool


def draw_plan(seed: int, kind: Kind) -> Plan:
    """Draw the plan of the round with this seed; the same seed always gives the same plan."""
    chance = random.Random(f"{seed} {kind.name}")
    workers = chance.choice(kind.workers)
    n_strikes = 2 if chance.random() < SECOND_FAULT_SHARE else 1
    keys = chance.randint(1, 3)
    seats = chance.randint(2, 6)
    turns = chance.randint(1, 3)
    n_cases = chance.randint(40, 150)
    # Some two to four seconds of requests on any pool: otherwise faults would come too late.
    latency_s = min(chance.uniform(2, 4) * keys * seats / (n_cases * turns), 0.5)
    return Plan(
        seed=seed,
        kind=kind,
        strikes=tuple(_draw_strike(chance, kind, workers) for _ in range(n_strikes)),
        workers=workers,
        n_cases=n_cases,
        turns=turns,
        keys=keys,
        seats=seats,
        latency_s=latency_s,
        body_s=chance.choice([0.0, 0.0, 0.002, 0.01]),
        resume_once_more=chance.random() < 1 / 3,
    )


def _draw_strike(chance: random.Random, kind: Kind, workers: int) -> Strike:
    moments = [one for one in kind.moments if workers or not _needs_workers(one)]
    spread_s = chance.choice([0.0, 0.02, 0.2, 0.6])
    return Strike(
        moment=chance.choice(moments),
        share=chance.uniform(0.02, 0.98),
        delay_s=chance.uniform(0, spread_s),
        which=chance.random(),
        gap_s=chance.uniform(0.2, 3.0) if kind.pauses else chance.uniform(0.0, 1.5),
        directly=chance.random() < 1 / 3,
    )


def _needs_workers(moment: Moment) -> bool:
    return "worker" in moment or moment == "broker process"
