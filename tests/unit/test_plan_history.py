"""The earlier run that a plan is based on, and which of its cases count."""

from __future__ import annotations

import os

import msgspec
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.plan.expectations import Expected
from pytest_ultrapar.analysis.plan.waste import Service
from pytest_ultrapar.broker.protocol import EstimatedLimit
from pytest_ultrapar.coordinator.check.lane_report import learned_limits
from pytest_ultrapar.coordinator.earlier_run import find_history, newest_estimates
from pytest_ultrapar.coordinator.header import known_services, pool_hints
from pytest_ultrapar.coordinator.planning import hint_notes
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import answered_by
from pytest_ultrapar.store.manifest import write_manifest
from tests.unit.finished_run import (
    case,
    episode,
    grade,
    make_run,
    run_of_seven,
    write_journal,
)
from tests.unit.pool_texts import real, simulated
from tests.unit.test_report_lanes import lane
from tests.unit.test_results_manifest import MANIFEST

LATENCY = 'latency = { kind = "fixed", median_s = 0.25 }'


@pytest.fixture(autouse=True)
def pool(load):
    return load


@pytest.fixture
def sim(pool):
    """A simulated pool of the models `m1` and `m2`."""
    second = '\n[[provider.model]]\nname = "m2"\n'
    return lambda model=LATENCY: pool(simulated(named="m1", model=model) + second)


def finished(tmp_path, pool, **fields):
    """Four graded cases, three of them of `m1`."""
    values = {"answered_by": answered_by(pool), "effective": pool.effective, **fields}
    run = run_of_seven(tmp_path / "run", **values)
    compact(run.path)
    return run.path


@pytest.mark.slow
def test_all_cases_of_a_run_of_the_same_pool_count(sim, tmp_path):
    run = finished(tmp_path, sim(), data={"tasks": "abc"})
    found = find_history(str(run), sim(), {"tasks": "abc"})
    assert len(found.run.episodes) == 4
    assert found.notes == (f"the earlier run is {run}, mode ultra",)
    other = find_history(str(run), sim(), {"tasks": "def"})
    assert other.notes[1:] == (
        "the earlier run had different data (tasks), so turns and tokens may differ",
    )


@pytest.mark.slow
def test_models_with_a_different_latency_or_answerer_are_left_out(sim, tmp_path):
    run = finished(tmp_path, sim())
    slower = find_history(str(run), sim(LATENCY.replace("0.25", "0.5")), {})
    assert {one.model for one in slower.run.episodes} == {"m2"}
    assert slower.notes[1:] == ("m1 had a different simulated latency",)
    skilled = find_history(str(run), sim(f"{LATENCY}\nskill = 0.5"), {})
    assert {one.model for one in skilled.run.episodes} == {"m2"}
    assert skilled.notes[1].startswith("m1's answers came from simulated echo of skill 1, ")


def test_plan_says_why_a_run_is_not_used(pool, sim, tmp_path, monkeypatch):
    run = finished(tmp_path, sim())
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ultrapar").mkdir(exist_ok=True)
    (tmp_path / ".ultrapar" / "latest").symlink_to(run)
    found = find_history(None, pool(real()), {})
    assert found.run.episodes == ()
    why = "its answers were simulated, but this run's are real"
    assert found.notes == (f"{run} is not used: {why}",)


@pytest.mark.slow
def test_run_without_any_of_the_models_is_refused_by_name(pool, sim, tmp_path):
    run = finished(tmp_path, sim())
    with pytest.raises(ConfigError, match="has no graded cases for these models"):
        find_history(str(run), pool(simulated(named="m9")), {})


def graded_run(path, pool, n_planned, n_graded, *, age_s, name="test"):
    """A run of one test function with this number of graded cases."""
    cases = [
        msgspec.structs.replace(case(number), nodeid=f"s/test_x.py::{name}[{number}]")
        for number in range(n_planned)
    ]
    values = {"answered_by": answered_by(pool), "effective": pool.effective}
    run = make_run(path, cases, **values)
    for number in range(n_graded):
        write_journal(run, f"gw{number}", episode(number, 1.0, 2.0), grade(number))
    compact(run.path)
    at_s = (path / "manifest.json").stat().st_mtime - age_s
    os.utime(path / "manifest.json", (at_s, at_s))
    return cases


@pytest.mark.slow
def test_newest_run_that_covers_most_of_the_cases_is_used(sim, tmp_path):
    parent = tmp_path / ".ultrapar"
    cases = graded_run(parent / "oldest", sim(), 8, 8, age_s=40)
    graded_run(parent / "bench-one" / "ultra", sim(), 8, 8, age_s=30)
    graded_run(parent / "aborted", sim(), 8, 1, age_s=20)
    graded_run(parent / "other", sim(), 9, 9, age_s=10, name="test_other")
    graded_run(tmp_path / "elsewhere", sim(), 2, 2, age_s=0)
    (parent / "broken").mkdir()
    (parent / "broken" / "manifest.json").write_text("{")
    (parent / "latest").symlink_to(tmp_path / "elsewhere")
    found = find_history(None, sim(), {}, cases)
    assert found.notes == (
        f"the earlier run is {parent / 'bench-one' / 'ultra'}, mode ultra; among 6 runs, it is "
        "the newest that covers these cases about as well as any other",
    )
    assert len(found.run.episodes) == 8
    # If no run covers the cases, the latest run is used.
    strange = [msgspec.structs.replace(case(99), nodeid="s/test_y.py::test[1]")]
    assert str(tmp_path / "elsewhere") in find_history(None, sim(), {}, strange).notes[0]
    slower = find_history(None, sim(LATENCY.replace("0.25", "0.5")), {}, cases)
    why = "m1 had a different simulated latency"
    assert slower.notes == (f"{tmp_path / 'elsewhere'} is not used: {why}",)


def test_service_time_of_a_model_is_measured_or_else_the_pools_hint(pool):
    hints = pool_hints(pool(real()))
    assert known_services(hints, []) == {"m": Service(1.0, is_assumed=True)}
    own = [Expected("a", "s", "m", (2.0, 4.0), None, None, "case")]
    assert known_services(hints, own) == {"m": Service(3.0)}


def test_plan_lists_its_assumptions(pool):
    hint = pool_hints(pool(real()))["m"]
    seen = Expected("a", "s", "m", (2.0,), None, None, "case")
    supposed = Expected("b", "s", "m", (1.0,), None, None, "hint")
    assert hint_notes([seen], {}) == ()
    assert hint_notes([seen, supposed], {"b": hint}) == (
        "turns per episode are assumed to be 1 (suite s)",
        "m: 1 s per request is assumed, because the pool states no latency_hint_s",
    )


def test_plan_reports_a_missing_earlier_run(sim):
    found = find_history(None, sim(), {})
    assert (found.run.episodes, found.notes) == ((), ("there is no earlier run in .ultrapar",))
    assert find_history("none", sim(), {}).notes == ()
    with pytest.raises(ConfigError, match="no run found at nowhere"):
        find_history("nowhere", sim(), {})


def test_simulated_run_is_refused_for_a_real_pool(pool, sim, tmp_path):
    run = finished(tmp_path, sim())
    with pytest.raises(ConfigError, match="its answers were simulated, but this run's are real"):
        find_history(str(run), pool(real()), {})


def learned(pool, tmp_path, *found, **fields):
    """The limits that the newest run estimated for the first lanes of a pool."""
    at = tmp_path / ".ultrapar" / MANIFEST.run_id
    at.mkdir(parents=True, exist_ok=True)
    lanes = [
        lane(
            one.lane_id, estimated=EstimatedLimit(one.limits[0] if one.limits else one.lane_id, *n)
        )
        for one, n in zip(pool.lanes, found, strict=False)
    ]
    fields = {"answered_by": answered_by(pool), "pool_lanes": pool.lanes, **fields}
    fields = {"lanes": lanes, "effective": pool.effective, **fields}
    limits = tuple(pool.limits.values())
    write_manifest(at, msgspec.structs.replace(MANIFEST, pool_limits=limits, **fields))
    run = newest_estimates(pool)
    return run and list(learned_limits(pool, run))


def test_estimated_limits_are_offered_in_the_pools_syntax(pool, tmp_path):
    free = pool(simulated(named="m1"))
    name = free.lanes[0].lane_id
    assert learned(free, tmp_path, (9, 2.34567, 3)) == [
        f"run {MANIFEST.run_id} estimated limits for {name}: workers = 9, qps = 2.346 "
        "(declared: nothing); to declare it, use per_lane = { workers = 9, qps = 2.346 }"
    ]
    assert learned(free, tmp_path, (None, None, 0)) == [], "no limit was reached"
    assert learned(free, tmp_path, lanes=[lane(name)]) is None, "nothing was estimated"
    assert learned(free, tmp_path, (9, None, 1), simulated=False) is None, (
        "estimates of other servers"
    )


def test_keys_with_equal_estimates_share_a_line_with_the_declared_limit(pool, tmp_path):
    keys = '[{ name = "key0" }, { name = "key1" }]'
    declared = pool(simulated("per_key = { workers = 4 }", keys=keys, named="m1"))
    (line,) = learned(declared, tmp_path, (7, None, 1), (7, None, 1))
    assert line.endswith(
        " limits for sim/key0, sim/key1: workers = 7 (declared: workers = 4); to declare it, use "
        "per_key = { workers = 7 }"
    )
    (line,) = learned(declared, tmp_path, (7, None, 1), (4, None, 1))
    assert " for sim/key0: workers = 7 " in line, "declared limits are not offered"
