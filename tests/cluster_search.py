"""The loss of hosts that search for one limit together: `python -m tests.cluster_search`.

Adaptive mode in virtual time: one host alone, then hosts of a cluster, on the providers of
`benchmarks.adaptive`. Answers take one second, a refusal 50 ms, and requests always wait.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.provider import Bears, Provider, Serving
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.shares import rows_of
from tests.played_cluster import Cluster

SPAN_S, STEADY_S = 300.0, 60.0
PROVIDERS = {
    "5 at once": (Provider((Bears(seats=5),)), 20),
    "10 at once": (Provider((Bears(seats=10),)), 40),
    "40 at once": (Provider((Bears(seats=40),)), 160),
    "40 at once, asks for 1 s": (Provider((Bears(seats=40),), retry_after_s=1.0), 160),
    "100 at once": (Provider((Bears(seats=100),)), 400),
    "100 at once, halved": (Provider((Bears(seats=100), Bears(from_s=120, seats=50))), 400),
    "20 per second": (Provider((Bears(rate=20),)), 80),
}


@dataclass(frozen=True)
class Found:
    """Answers in the steady part / the provider's capacity then, and refusals in all."""

    used: float
    refused: int


def search(provider: Provider, ceiling: int, hosts: int, seed: int) -> Found:
    """Play `SPAN_S`; without `hosts`, one host that shares nothing."""
    if not hosts:
        alone = LimitPlay(provider, ceiling=ceiling, seed=seed, span_s=SPAN_S)
        alone.run()
        return _found([alone])
    cluster, serving = Cluster(), Serving(provider, random.Random(seed))
    plays = []
    for number in range(hosts):
        play = LimitPlay(provider, ceiling=ceiling, seed=100 * seed + number, span_s=SPAN_S)
        pool = play.pool
        play.broker = LaneBroker(pool, seed=100 * seed + number, shared=rows_of(pool))
        play.serving = serving
        play.connect("main")
        cluster.join(play, pool)
        play.begin()
        plays.append(play)
    cluster.wait(SPAN_S)
    return _found(plays)


def _found(plays: list[LimitPlay]) -> Found:
    answers = sum(at_s >= STEADY_S for play in plays for at_s in play.served_s)
    best = plays[0].best(STEADY_S, SPAN_S)
    return Found(answers / best, sum(play.n_refused for play in plays))


def main() -> None:
    """Print a row for each provider and number of hosts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hosts", type=int, nargs="+", default=[0, 3])
    options = parser.parse_args()
    for name, (provider, ceiling) in PROVIDERS.items():
        for hosts in options.hosts:
            found = [search(provider, ceiling, hosts, seed) for seed in range(options.seeds)]
            used = statistics.median(one.used for one in found)
            refused = statistics.mean(one.refused for one in found)
            who = f"{hosts} hosts" if hosts else "alone"
            print(f"{name:26} {who:8} used {used:.3f}, refused {refused:.1f}", flush=True)


if __name__ == "__main__":
    main()
