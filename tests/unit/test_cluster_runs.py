"""Two runs that share a key, each of two hosts: both go on, and get the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.provider import Provider, Serving
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.shares import rows_of
from tests.played_cluster import Cluster


def served_s(hosts: Sequence[str], span_s: float, *, workers: int, qps: float | None):
    """When answers came, by run; a host for each name of a run that is given."""
    provider = Provider()
    cluster, serving = Cluster(), Serving(provider, random.Random(0))
    found: dict[str, list[float]] = {}
    for seed, run in enumerate(hosts):
        play = LimitPlay(
            provider, ceiling=workers, qps=qps, rate_mode="fixed", seed=seed, span_s=1e9
        )
        play.broker = LaneBroker(play.pool, seed=seed, shared=rows_of(play.pool))
        play.serving = serving
        play.served_s = found.setdefault(run, [])
        play.connect("main")
        cluster.join(play, play.pool, run=run)
        play.begin()
    cluster.wait(span_s)
    assert serving.peak <= workers
    return list(found.values())


def jain(amounts: Sequence[float]) -> float:
    """1 where all have the same, 1 / n where one has all."""
    return sum(amounts) ** 2 / (len(amounts) * sum(n * n for n in amounts))


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [("a", "b"), ("a", "a", "a", "b")])
@pytest.mark.parametrize(
    ("workers", "qps", "over_s", "least"),
    [
        (10, None, 10.0, 8.0),
        (40, 10.0, 10.0, 8.5),
        # Too little for two: they take turns of 20 s, so that it takes two turns to be fair.
        (5, 2.0, 40.0, 1.5),
        (1, None, 40.0, 0.7),
    ],
)
def test_runs_get_the_same_while_both_want(hosts, workers, qps, over_s, least):
    served = served_s(hosts, 10 + 5 * over_s, workers=workers, qps=qps)
    for n in range(5):
        begin_s = 10 + n * over_s
        counts = [sum(begin_s <= at_s < begin_s + over_s for at_s in one) for one in served]
        assert jain(counts) >= 0.95, counts
        assert sum(counts) >= least * over_s
