"""The expected requests of each episode, and the intervals of their sums."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from pytest_ultrapar.analysis.plan.expectations import EarlierEpisode, Hint, expect
from pytest_ultrapar.analysis.plan.run_plan import ASSUMED_WITHIN, Amount, amount, calls, service_s
from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.records import Case

FIXED = Hint(2.0, Latency("fixed", 0.5), tokens_in=100, tokens_out=10)


def case(number, model="m", suite="s", test="t.py::test"):
    name = f"{suite}-{model}-{number}"
    return Case(number, name, f"{test}[{name}]", suite, model, 0, {}, seed=number)


def seen(number, *services, model="m", suite="s", tokens=(7, 3), test="t.py::test"):
    name = f"{suite}-{model}-{number}"
    return EarlierEpisode(name, suite, model, services, *tokens, test)


def test_measured_case_is_expected_to_run_as_before():
    found = expect([case(1)], [seen(0, 9.0), seen(1, 0.1, 0.2)], lambda _: FIXED)
    assert [(one.services_s, one.tokens_in, one.basis) for one in found] == [
        ((0.1, 0.2), 7, "case")
    ]


def test_new_case_of_a_measured_test_and_model_gets_an_episode_by_its_seed():
    earlier = [seen(1000 + n, float(n)) for n in range(10)]
    cases = [case(number) for number in range(500)]
    found = expect(cases, earlier, lambda _: FIXED)
    assert {one.basis for one in found} == {"test"}
    assert {one.services_s for one in found} == {(float(n),) for n in range(10)}
    assert statistics.mean(service_s(one) for one in found) == pytest.approx(4.5, abs=0.4)
    assert expect(list(reversed(cases)), earlier, lambda _: FIXED) == found[::-1]


def test_case_of_an_unmeasured_model_uses_hints():
    (found,) = expect([case(0)], [seen(0, 9.0, model="n")], lambda _: FIXED)
    assert (found.services_s, found.tokens_in, found.basis) == ((0.5, 0.5), 100, "hint")


def test_model_measured_in_another_suite_gives_a_wide_interval():
    other = [seen(0, 9.0, suite="t", test="u.py::test"), seen(0, 5.0, model="n")]
    found = expect([case(0)], other, lambda _: FIXED)
    assert [(one.services_s, one.basis) for one in found] == [((9.0,), "model")]
    assert amount(found, other, service_s) == Amount(9.0, 4.5, 18.0)


def test_episodes_of_another_test_function_give_a_wide_interval():
    earlier = [seen(0, 1.0), seen(1, 1.0), seen(2, 1.0, 1.0, test="t.py::TestIt::test_two")]
    two = [case(9, test="t.py::TestIt::test_two"), case(8, test="t.py::TestIt::test_three")]
    found = expect(two, earlier, lambda _: FIXED)
    assert [one.basis for one in found] == ["test", "suite"]
    assert found[0].services_s == (1.0, 1.0)
    assert amount(found[1:], earlier, service_s).low == service_s(found[1]) / ASSUMED_WITHIN


def test_turns_of_a_hint_are_whole_and_average_to_it():
    hint = Hint(2.5, Latency("fixed", 0.5), tokens_in=100)
    found = expect([case(number) for number in range(2000)], [], lambda _: hint)
    assert {len(one.services_s) for one in found} == {2, 3}
    assert statistics.mean(map(calls, found)) == pytest.approx(2.5, abs=0.05)
    assert statistics.mean(one.tokens_in for one in found) == pytest.approx(100, rel=0.02)


def test_latencies_of_a_simulated_model_are_drawn():
    hint = Hint(1.0, Latency("log-normal", 0.2, 0.5))
    found = expect([case(number) for number in range(3000)], [], lambda _: hint)
    logs = [math.log(one.services_s[0]) for one in found]
    assert statistics.mean(logs) == pytest.approx(math.log(0.2), abs=0.05)
    assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.05)


def test_hints_count_from_half_to_twice_next_to_measurements():
    earlier = [seen(0, 1.0, 1.0), seen(1, 1.0, 1.0)]
    found = expect([case(0), case(1), case(0, model="n")], earlier, lambda _: FIXED)
    assert amount(found, earlier, calls) == Amount(
        6.0, 4 + 2 / ASSUMED_WITHIN, 4 + 2 * ASSUMED_WITHIN
    )


@pytest.mark.slow
def test_interval_contains_the_next_runs_sum_95_times_in_100():
    draw = random.Random(7)

    def run(n, model, mean):
        return [seen(k, mean * draw.lognormvariate(0, 0.5), model=model) for k in range(n)]

    held = 0
    for _ in range(400):
        earlier = run(40, "m", 1.0) + run(80, "n", 3.0)
        cases = [case(k) for k in range(40)] + [case(k, "n") for k in range(80)]
        found = amount(expect(cases, earlier, lambda _: FIXED), earlier, service_s)
        true = sum(map(service_s, run(40, "m", 1.0) + run(80, "n", 3.0)))
        held += found.low <= true <= found.high
    assert 0.92 <= held / 400 <= 0.98


JUDGE = {"judge": ("j", Hint(1.0, Latency("fixed", 0.3), is_assumed=True))}


def judged(number, *services):
    return EarlierEpisode(f"s-m-{number}", "s", "j", services, 50, 5, "t.py::test", role="judge")


def shown(expected):
    return [(one.case_id, one.model, one.role, one.services_s, one.basis) for one in expected]


def test_case_sends_the_role_requests_of_its_earlier_episode():
    earlier = [seen(0, 1.0), judged(0, 0.1, 0.2), seen(1, 2.0)]
    found = expect([case(0), case(1)], earlier, lambda _: FIXED, roles=JUDGE, known=("judge",))
    # The second case sent no request to the judge, and the plan expects none.
    assert shown(found) == [
        ("s-m-0", "m", "", (1.0,), "case"),
        ("s-m-0", "j", "judge", (0.1, 0.2), "case"),
        ("s-m-1", "m", "", (2.0,), "case"),
    ]
    (new, *asked) = expect([case(7)], earlier[:2], lambda _: FIXED, roles=JUDGE, known=("judge",))
    assert (new.basis, shown(asked)) == ("test", [("s-m-7", "j", "judge", (0.1, 0.2), "test")])


@pytest.mark.parametrize("earlier", [[], [seen(0, 1.0)]])
def test_unmeasured_role_gets_one_request_from_each_case(earlier):
    own, asked = expect([case(0)], earlier, lambda _: FIXED, roles=JUDGE)
    assert own.role == ""
    assert shown([asked]) == [("s-m-0", "j", "judge", (0.3,), "hint")]
