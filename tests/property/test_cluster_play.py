"""Whole runs of several hosts in virtual time: limits hold; the loss against one host is small."""

import pytest

from tests.cluster_play import STORIES, RunPlay, Suite, keys_of


@pytest.mark.parametrize("n_hosts", [2, 3, 5])
@pytest.mark.parametrize("story", ["qps2", "ten"])
def test_several_hosts_lose_little_against_one(story, n_hosts):
    n_keys, models, amounts, n_cases, kind = STORIES[story]
    what, suite = keys_of(n_keys, models, **amounts), Suite(models, n_cases, 0, **kind)
    run = RunPlay(what, suite)
    assert run.together(n_hosts) < 1.05 * RunPlay(what, suite).alone()
    for key in run.provider.began_s:
        assert run.provider.most_in(key, 1.0) <= amounts["qps"]
        assert run.provider.most_in_flight(key) <= amounts["workers"]


@pytest.mark.cpu_s(3)
def test_large_requests_are_sent_although_many_hosts_want_the_limit():
    suite = Suite(["m"], 30, 0, turns=(1, 1), median_s=2.0, tokens=8_000)
    what = keys_of(1, ["m"], tpm=100_000)
    run = RunPlay(what, suite)
    assert run.together(8) < 1.2 * RunPlay(what, suite).alone()
    assert len(run.provider.began_s["key0"]) == 30
    assert run.provider.most_in("key0", 60.0) <= 12


def test_a_host_that_joins_at_half_time_has_its_share_within_two_seconds():
    suite = Suite(["m"], 600, 0, turns=(1, 1), median_s=1.0, sigma=0.4)
    run = RunPlay(keys_of(1, ["m"], workers=60, qps=20), suite)
    run.join("h0", 0.0)
    while run.hosts[0].play.now_s < 15.0:
        run.step()
    late = run.join("late", 15.0)
    while not run.is_over:
        run.step()
    half_s = next(at_s for at_s, (seats, rate) in late.shares_s if seats >= 20 and rate >= 9)
    assert half_s - 15.0 < 2.0
    assert run.provider.most_in("key0", 1.0) <= 20
    assert run.provider.most_in_flight("key0") <= 60
