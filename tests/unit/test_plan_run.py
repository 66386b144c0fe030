"""A whole plan and its text: loads, cost, bound and predictions of each mode."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from pytest_ultrapar.analysis.plan.expectations import EarlierEpisode, EarlierRun, Expected
from pytest_ultrapar.analysis.plan.load import KeyLoad, LaneLoad, binding, limit_loads
from pytest_ultrapar.analysis.plan.run_plan import ModeOption, make_plan
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.coordinator.policies import one_at_a_time
from pytest_ultrapar.records import Case
from pytest_ultrapar.report.plan_report import MOST_ROWS, plan_lines, short_of_money

POOL = """schema = 1
[[provider]]
name = "p"
api = "openai"
base_url = "https://api.example.com/v1"
keys = [{ name = "key0", env = "A" }, { name = "key1", env = "B" }]
per_key = { workers = 5, qps = 10 }

[[provider.model]]
name = "m"
latency_hint_s = 0.5
price_per_mtok_in = 2
price_per_mtok_out = 10

[[provider.model]]
name = "n"
latency_hint_s = 0.5
"""


@pytest.fixture
def pool(load):
    return load(POOL)


def run(n, model="m", tokens=(1000, 100), basis="case", services=(0.25, 0.25)):
    """Expected episodes, and the earlier episodes that they are based on."""
    ids = [f"{model}{k}" for k in range(n)]
    expected = [Expected(one, "s", model, services, *tokens, basis) for one in ids]
    return expected, tuple(EarlierEpisode(one, "s", model, services, *tokens) for one in ids)


def ways(pool, expected, *, processes=()):
    cases = [Case(k, one.case_id, "", "s", one.model, 0, {}, 0) for k, one in enumerate(expected)]
    return [
        ModeOption(
            "serial", "none", Assignment(groups=(one_at_a_time(pool.lanes, cases, rotates=False),))
        ),
        ModeOption(
            "rotate", "none", Assignment(groups=(one_at_a_time(pool.lanes, cases, rotates=True),))
        ),
        ModeOption("phase", "", None, "no conftest defines its phases"),
        ModeOption("ultra", "even", Assignment(), processes=processes),
    ]


def planned(pool, expected, earlier=(), **options):
    before = EarlierRun(earlier, 0.0, 0.0)
    return make_plan(
        pool, pool.lanes, expected, before, ways(pool, expected, **options), mode="ultra"
    )


def text(plan, *, settings=(), sources=(), warnings=(), simulated=False, width=200):
    return plan_lines(
        plan,
        settings=settings,
        sources=sources,
        warnings=warnings,
        simulated=simulated,
        width=width,
    )


def test_load_of_a_limit_is_the_load_of_its_lanes(pool):
    lanes = [lane for lane in pool.lanes if lane.model == "m"]
    loads = {lanes[0].lane_id: LaneLoad(30, 45.0), lanes[1].lane_id: LaneLoad(10, 5.0)}
    found = {one.name: one for one in limit_loads(pool.lanes, pool.limits, loads)}
    assert found["p/key0 (workers)"].alone_s == pytest.approx(45 / 5)
    assert found["p/key0 (qps)"].alone_s == pytest.approx(30 / 10)
    assert (found["p/key0 (qps)"].share, found["p/key1 (qps)"].share) == (0.75, 0.25)
    assert [one.alone_s for one in limit_loads(pool.lanes, pool.limits, loads)] == [9, 3, 1, 1]


def test_plan_shows_load_cost_and_bound_of_a_run_limited_by_rates(pool):
    plan = planned(pool, *run(200))
    assert (plan.n_cases, plan.calls.value, plan.service_s.value) == (200, 400, 100.0)
    assert plan.chosen.forecast.makespan_s == pytest.approx(400 / 20 * 1.02, rel=0.05)
    assert binding(plan.chosen.limits) == "p/key0 (qps) and 1 like it"
    assert 0.85 <= plan.bound.seconds / plan.chosen.forecast.makespan_s <= 1
    serial, rotate, phase, _ = plan.predictions
    assert serial.forecast.makespan_s == pytest.approx(100.0, rel=0.01)
    assert rotate.forecast.makespan_s == pytest.approx(100.0, rel=0.01)
    assert sent_on_keys(serial) == [400, 0]
    assert sent_on_keys(rotate) == pytest.approx([200, 200], abs=2)
    assert phase.forecast is None


def sent_on_keys(prediction):
    lanes = prediction.forecast.lanes.items()
    return [
        sum(load.requests for lane, load in lanes if lane.endswith(key)) for key in ("key0", "key1")
    ]


@pytest.mark.parametrize("measured", ["m", "n"])
def test_interval_of_the_time_covers_every_equally_binding_limit(load, measured):
    one, other = POOL.split("[[provider.model]]")[:2]
    one = one.replace(', { name = "key1", env = "B" }', "") + f"[[provider.model]]{other}"
    two = one.removeprefix("schema = 1\n").replace('"p"', '"q"').replace('"A"', '"B"')
    pool = load(one + two.replace('name = "m"', 'name = "n"'))
    supposed = "n" if measured == "m" else "m"
    (seen, before), (guessed, _) = run(200, measured), run(200, supposed, basis="hint")
    plan = planned(pool, [*seen, *guessed], before)
    time = plan.chosen.makespan_s
    assert [load.alone_s for load in plan.chosen.limits[:2]] == pytest.approx([40.0, 40.0])
    # The measured key needs its time; the assumed time of the other key may double.
    assert (time.low, time.high) == pytest.approx((time.value, 2 * time.value), rel=0.01)


def test_bound_names_the_first_of_the_equally_binding_limits(pool):
    """Limits that bind equally are in the table's order: change the limit in the first row."""
    plan = planned(pool, *run(200))
    top = plan.chosen.limits[0]
    line = next(line for line in text(plan) if line.startswith("lower bound"))
    assert line.endswith(f", set by {top.name} and 1 like it")
    first, second, *others = plan.bound.prices
    turned = msgspec.structs.replace(plan.bound, prices=(second, first, *others))
    said = text(dataclasses.replace(plan, bound=turned))
    assert line in said


def test_cost_covers_the_models_with_a_price(pool):
    (priced, before), (other, _) = run(10), run(5, "n", basis="hint")
    plan = planned(pool, [*priced, *other], before)
    assert plan.cost.value == pytest.approx(10 * (1000 * 2 + 100 * 10) / 1e6)
    assert plan.unpriced == {"n": ("price_per_mtok_in", "price_per_mtok_out")}
    left_out = (
        "the cost excludes n, which has no price_per_mtok_in and no price_per_mtok_out in the pool"
    )
    assert left_out in text(plan)
    assert planned(pool, other).cost is None
    assert planned(pool, *run(3, tokens=(None, None))).cost is None


@pytest.mark.parametrize(("budget", "shown"), [(1.0, "1.00"), (0.02, "0.0200")])
def test_cost_is_compared_with_the_budget(load, budget, shown):
    pool = load(POOL + f"\n[pool]\nbudget = {budget}\n")
    plan = planned(pool, *run(10))
    assert plan.budget == budget
    assert f"the pool's budget: {shown} USD; expected cost: 0.0300 USD" in "\n".join(text(plan))
    warnings = list(short_of_money(plan))
    assert len(warnings) == (budget < 0.03)
    assert all("raise --ultrapar-budget to 0.0300 USD or more" in one for one in warnings)


def test_incomplete_price_is_named(load):
    half = POOL.replace("price_per_mtok_out = 10\n", "")
    pool = load(half)
    plan = planned(pool, *run(3))
    assert plan.cost is None
    assert "the cost is unknown for m, which has no price_per_mtok_out in the pool" in text(plan)
    pool = load(half.replace("price_per_mtok_in = 2\n", ""))
    assert "price" not in "\n".join(text(planned(pool, *run(3))))


def test_binding_key_and_binding_limit_are_both_named(load):
    text_of_pool = POOL.replace("qps = 10 }", "qps = 10 }\nper_key_model = { workers = 1 }")
    pool = load(text_of_pool)
    loads = (KeyLoad("p/key0", ("a", "b"), 2, 4.0, 10.0),)
    lines = text(planned(pool, *run(200), processes=loads))
    (said,) = (line for line in lines if "binding key: " in line)
    binding = "binding key: p/key0 (qps) and 1 like it (time alone: 20.0 s); binding limit:"
    assert binding in said
    first = next(at for at, line in enumerate(lines) if line.startswith("limit, mode ultra"))
    name = lines[first + 1].split()[0]
    assert f"binding limit: {name} (workers) and 1 like it (time alone: 50.0 s)" in said


def test_text_fits_a_narrow_terminal_and_counts_omitted_limits(load):
    instances = ", ".join(f'"m-{n}"' for n in range(30))
    many = POOL.replace("latency_hint_s", f"instances = [{instances}]\nlatency_hint_s", 1)
    many = many.replace("latency_hint_s", "per_instance = { workers = 2 }\nlatency_hint_s", 1)
    pool = load(many)
    plan = planned(pool, *run(100))
    lines = text(plan, width=80)
    table = lines.index(next(line for line in lines if line.startswith("limit, mode ultra")))
    assert lines[table + MOST_ROWS + 1].startswith("(")
    assert lines[table + MOST_ROWS + 1].endswith("more limits, which would need less time)")
    assert max(len(line) for line in lines if line.startswith(("model ", "limit,"))) <= 80


def test_cases_without_a_lane_are_counted_as_refused(pool):
    expected, before = run(3)
    lanes = tuple(lane.lane_id for lane in pool.lanes if lane.model == "n")
    bound = Assignment(groups=(Group("g", tuple(one.case_id for one in expected), lanes),))
    way = ModeOption("ultra", "even", bound)
    plan = make_plan(pool, pool.lanes, expected, EarlierRun(before, 0, 0), [way], mode="ultra")
    assert len(plan.chosen.forecast.refused) == 3
    assert text(plan)
