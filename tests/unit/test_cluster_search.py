"""Adaptive mode in a cluster: one host at a time uses a limit that must be found."""

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


def test_later_host_gets_an_unknown_limit_only_after_its_holder_is_dead():
    """Otherwise open cases of one host wait until the other host has no case left."""
    cluster, serving = Cluster(), Serving(FIVE, random.Random(0))
    first = host(cluster, serving, 0)
    cluster.wait(30.0)
    others = [host(cluster, serving, seed) for seed in range(1, 8)]
    cluster.wait(60.0)
    assert len(first.served_s) > 90 * 5 * 0.85
    assert not any(one.served_s for one in others)
    cluster.kill(first)
    serving.in_flight = 0
    # Only seats that the dead host used stay reserved for 600 s, the longest time of a request.
    cluster.wait(60.0)
    served = [len(one.served_s) for one in others]
    assert sum(n > 0 for n in served) == 1
    assert sum(served) > 50 * 5 * 0.85
