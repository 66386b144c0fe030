"""Adaptive mode on hosts of a cluster: a limit that must be found is one host's at a time."""

from __future__ import annotations

import random

import pytest

from benchmarks.adaptive.play import LimitPlay
from benchmarks.adaptive.provider import Bears, Provider, Serving
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.shares import rows_of
from tests.cluster_search import PROVIDERS, search
from tests.played_cluster import Cluster

pytestmark = pytest.mark.slow

FIVE, CEILING = Provider((Bears(seats=5),)), 20


@pytest.mark.parametrize("name", ["10 at once", "20 per second"])
def test_three_hosts_find_a_limit_as_well_as_one(name):
    alone, hosts = (
        [search(*PROVIDERS[name], n_hosts, seed) for seed in range(2)] for n_hosts in (0, 3)
    )
    assert sum(one.used for one in hosts) >= 0.95 * sum(one.used for one in alone)
    assert sum(one.refused for one in hosts) <= 1.5 * sum(one.refused for one in alone)


def host(cluster: Cluster, serving: Serving, seed: int) -> LimitPlay:
    play = LimitPlay(FIVE, ceiling=CEILING, seed=seed, span_s=1e9)
    play.broker = LaneBroker(play.pool, seed=seed, shared=rows_of(play.pool))
    play.serving = serving
    play.connect("main")
    cluster.join(play, play.pool)
    play.begin()
    return play


def test_who_comes_later_takes_it_from_nobody_and_has_it_when_that_one_is_dead():
    """Else cases that are open on the one would wait until the other has none left."""
    cluster, serving = Cluster(), Serving(FIVE, random.Random(0))
    first = host(cluster, serving, 0)
    cluster.wait(30.0)
    others = [host(cluster, serving, seed) for seed in range(1, 8)]
    cluster.wait(60.0)
    assert len(first.served_s) > 90 * 5 * 0.85
    assert not any(one.served_s for one in others)
    cluster.kill(first)
    serving.in_flight = 0
    # Its seats count for as long as its requests may run, 600 s; not those it had no use for.
    cluster.wait(60.0)
    served = [len(one.served_s) for one in others]
    assert sum(n > 0 for n in served) == 1
    assert sum(served) > 50 * 5 * 0.85
