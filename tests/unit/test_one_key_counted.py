"""Counts per key include a key once, even if the pool lists it several times."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_ultrapar.analysis.plan.load import key_load
from pytest_ultrapar.analysis.requests import audit
from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.coordinator.keys.acquire_keys import locked_keys
from pytest_ultrapar.coordinator.policies import find_policy
from pytest_ultrapar.records import Case
from pytest_ultrapar.report.plan_report import key_lines
from tests.unit.pool_texts import real, without_schema
from tests.unit.request_logs import episode, log_of, request

SECRET = "sk-canary-0123456789"
ENVIRON = {"KEY_0": SECRET, "OTHER": SECRET, "THIRD": "another"}
BOTH = "p/key0 + q/k"
KEYS = '[{ name = "k", env = "OTHER" }, { name = "alone", env = "THIRD" }]'


@pytest.fixture
def pool(load):
    second = real(name="q", keys=KEYS, url='base_url = "https://API.example.com:443/other"')
    return load(real() + without_schema(second), ENVIRON)


def test_audit_counts_a_key_without_a_limit_once(pool):
    lanes = pool.lanes[:2]
    sent = [
        replace(request(at, at + 2), provider=lane.provider, instance=lane.instance, key=lane.key)
        for at, lane in enumerate(lanes)
    ]
    (found,) = audit(log_of(lanes, *map(episode, sent)), ())
    assert (found.limit, found.n, found.in_flight) == (BOTH, 2, 2)


def test_processes_that_share_a_key_are_counted_under_all_its_names(pool):
    cases = [Case(0, "c", "", "s", "m", 0, {}, 0)]
    found = key_load(pool, pool.lanes, cases, Assignment(), process_of=lambda _: "one")
    assert [(load.name, load.most_at_once) for load in found] == [(BOTH, 1), ("q/alone", 1)]
    assert key_lines(found)[1] == f"load: {BOTH}: 1 at once, 2 QPS: one"


def test_key_is_locked_once(pool):
    keys = locked_keys(pool, pool.lanes, ENVIRON, None)
    assert sorted(key.shown for key in keys.values()) == [BOTH, "q/alone"]


def test_policies_assign_workers_to_a_key_once(pool):
    cases = [Case(0, "c", "", "s", "m", 0, {}, 0)]
    made = find_policy("by-key", "ultra")(pool, ["gw0", "gw1"], pool.lanes, cases)
    assert made.home == {"gw0": ("p/m/key0", "q/m/k"), "gw1": ("q/m/alone",)}
