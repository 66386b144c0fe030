"""A budget that is nearly spent begins only cases that it can finish."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from pytest_ultrapar.broker.budget import Budgets
from pytest_ultrapar.broker.protocol import BUDGET, Feedback
from pytest_ultrapar.broker.spending_file import SpendingFile
from pytest_ultrapar.pool.model import Limit, Pool
from pytest_ultrapar.pool.money import ModelPrice
from tests.broker_play import Play
from tests.pools import lane, pool

MILLIONTH = 1e-6
"""The price of a token of an answer. Tokens of a prompt are free."""


def tokens_pool(
    whole: int | None, *, workers: int = 8, judges: tuple[int | None, ...] = (None,)
) -> Pool:
    """Models `s`, `c` (a tenth of the price) and `j` (one key for each budget in `judges`)."""
    lanes = [
        replace(lane("i", "k", "pool", f"{model}/k", model=model), lane_id=f"{model}/i/k")
        for model in "sc"
    ]
    lanes += [
        replace(lane("i", f"k{n}", "pool", f"j/k{n}", model="j"), lane_id=f"j/i/k{n}")
        for n in range(len(judges))
    ]
    limits = [Limit("pool", "pool", budget=None if whole is None else whole * MILLIONTH)]
    limits += [Limit(f"{model}/k", "key", workers=workers) for model in "sc"]
    for n, budget in enumerate(judges):
        amount = None if budget is None else budget * MILLIONTH
        limits.append(Limit(f"j/k{n}", "key", workers=workers, budget=amount))
    prices = tuple(ModelPrice("p", model, 0.0, per_out) for model, per_out in (*ONES, ("c", 0.1)))
    return replace(pool(lanes, *limits), prices=prices)


ONES = (("s", 1.0), ("j", 1.0))


class Story(Play):
    """Sends requests of cases by hand: answers have `n_out` tokens, `most` are reserved."""

    def __init__(self, what: Pool) -> None:
        super().__init__(what, budgets=Budgets(what))

    def begin(self, case_id: str, model: str = "s") -> int:
        return self.ask(model=model, opens=True, case_id=case_id)

    def own(self, request_id: int, n_out: int, most: int) -> None:
        """Answer the first request of a case."""
        assert self.paid(request_id, 0, most)
        self.answer(request_id, "ok", Feedback(tokens=n_out, tokens_out=n_out))

    def judge(self, case_id: str, n_out: int, most: int) -> None:
        request_id = self.ask(model="j", opens=False, case_id=case_id, most_out=most)
        self.answer(request_id, "ok", Feedback(tokens=n_out, tokens_out=n_out))

    def case(self, case_id: str, model: str = "s") -> None:
        """Run a whole case, which uses 10 and 50 tokens and reserves 20 and 80."""
        self.own(self.begin(case_id, model), 10, 20)
        self.judge(case_id, 50, 80)
        self.end(case_id)


def test_case_begins_only_if_the_budget_also_covers_open_cases():
    play = Story(tokens_pool(60 + 90 + 60))
    play.case("a")
    # A case needs 90: 60 that it uses, and 30 that its judge reserves beyond that.
    b = play.begin("b")
    play.own(b, 10, 20)
    c = play.begin("c")
    assert c in play.waiting, "140 are left, of which b takes 80"
    play.judge("b", 40, 80)
    assert c in play.waiting, "b may send another request"
    play.end("b")
    assert play.lane(c) == "s/i/k"
    play.own(c, 10, 20)
    play.judge("c", 50, 80)
    play.end("c")
    assert play.refused == {}


def test_case_that_cannot_finish_does_not_begin_and_a_cheaper_one_does():
    play = Story(tokens_pool(2 * 60 + 1 + 89))
    play.case("a")
    play.own(play.begin("d", "c"), 10, 20)
    play.end("d")
    play.case("b")
    costly, cheap = play.begin("e"), play.begin("f", "c")
    assert play.kinds == {BUDGET}
    assert play.refused[costly].startswith(
        "the budget of pool (0.000210 USD, 0.0000890 USD left) does not cover "
        "the 0.0000900 USD that a new case of s may need, including the reservation for its "
        "costliest request; "
    )
    assert play.lane(cheap) == "c/i/k"


def test_case_does_not_begin_if_no_key_has_money_for_its_judge():
    play = Story(tokens_pool(None, judges=(100, 140)))
    for case_id in "ab":
        play.case(case_id)
    # 50 are left on one key and 90 on the other.
    play.case("c")
    last = play.begin("d")
    assert play.refused[last].startswith("the budget of j/k")


def test_cost_of_the_first_cases_is_estimated_from_open_cases():
    play = Story(tokens_pool(200))
    a, b = play.begin("a"), play.begin("b")
    play.own(a, 10, 20)
    play.judge("a", 50, 80)
    # a is open and b costs as much: 140 are left, less 90 for b and 30 for a.
    assert play.begin("c") in play.waiting
    play.own(b, 10, 20)


def test_refusal_names_a_missing_max_tokens():
    play = Story(tokens_pool(200))
    bounded = play.ask(model="s", opens=False, most_out=300)
    unbounded = play.ask(model="s", opens=False, most_out=0, n_guessed=1)
    assert "max_tokens" not in play.refused[bounded]
    said = " that a request without max_tokens may cost; limit its answer with max_tokens"
    assert said in play.refused[unbounded]


class Run(Play):
    """A run in virtual time: each case sends its requests one after the other.

    Attributes:
        lost: Cases that had a paid answer and then ran out of budget.
        n_done: The number of finished cases.
    """

    def __init__(self, what: Pool, cases: dict[str, list[tuple[str, int]]], seed: int) -> None:
        self.budgets = Budgets(what)
        super().__init__(what, self.granted, now_s=0.0, budgets=self.budgets)
        self.rng, self.cases = random.Random(seed), cases
        self.at: Counter[str] = Counter()
        self.lost: list[str] = []
        self.n_done = 0
        for case_id, steps in cases.items():
            self.ask(model=steps[0][0], opens=True, case_id=case_id)
        while self.next_s() < 1e8:
            self.step()
            for request_id in list(self.refused):
                case_id = self.requests[request_id].case_id
                self.lost += [case_id] * (self.at[case_id] > 0)
                del self.refused[request_id]
                self.end(case_id)
        assert not self.waiting
        assert self.kinds <= {BUDGET}

    def granted(self, request_id: int) -> None:
        self.later(0.0, self.begun, request_id)

    def begun(self, request_id: int) -> None:
        case_id = self.requests[request_id].case_id
        if self.requests[request_id].opens and not self.paid(request_id, 0, self.most(case_id)):
            self.back(request_id, "unsent")
            self.go_on(case_id)
            return
        self.later(self.rng.uniform(0.5, 2), self.over, request_id)

    def most(self, case_id: str) -> int:
        return 2 * self.cases[case_id][self.at[case_id]][1]

    def go_on(self, case_id: str) -> None:
        model, _ = self.cases[case_id][self.at[case_id]]
        self.ask(model=model, opens=False, case_id=case_id, most_out=self.most(case_id))

    def over(self, request_id: int) -> None:
        case_id = self.requests[request_id].case_id
        if self.rng.random() < 0.05:
            self.back(request_id, "timeout")
            self.go_on(case_id)
            return
        _, n_out = self.cases[case_id][self.at[case_id]]
        self.answer(request_id, "ok", Feedback(tokens=n_out, tokens_out=n_out))
        self.at[case_id] += 1
        if self.at[case_id] < len(self.cases[case_id]):
            self.later(0.1, self.go_on, case_id)
        else:
            self.n_done += 1
            self.later(0.1, self.end, case_id)


PLANS = {
    "judged": lambda _: [("s", 100), ("j", 300)],
    "turns": lambda rng: [("s", 60)] * rng.randint(2, 6),
    "two models": lambda rng: [(rng.choice("sc"), 100), ("j", 200)],
    "roles": lambda rng: [("s", 100), ("j", 200), ("c", 300)] + [("j", 50)] * rng.randint(0, 1),
}


@pytest.mark.parametrize("plan", PLANS)
def test_few_paid_answers_are_lost_at_the_end_of_a_budget(plan):
    lost = n_done = 0
    for seed in range(2):
        rng = random.Random(seed)
        cases = {
            str(n): [
                (model, int(n_out * rng.uniform(0.5, 1.5))) for model, n_out in PLANS[plan](rng)
            ]
            for n in range(120)
        }
        per_token = {"s": 1, "j": 1, "c": 0.1}
        costs = [sum(per_token[model] * n for model, n in steps) for steps in cases.values()]
        run = Run(tokens_pool(int(sum(costs) * 0.7)), cases, seed)
        purse = run.budgets.purses["pool"]
        assert purse.spent <= purse.amount
        # The cost of a case, and as much again for the reservation of its costliest request.
        assert purse.left / 1e6 <= 2 * max(costs)
        lost += len(run.lost)
        n_done += run.n_done
    assert lost <= 0.02 * n_done


def test_free_request_is_not_written_to_the_spending_file(tmp_path):
    prices = tuple(ModelPrice("p", model, 0.0, 0.0) for model in "scj")
    free = replace(tokens_pool(1000), prices=prices)
    file = SpendingFile(tmp_path / "spending.log")
    play = Play(free, budgets=Budgets(free, file))
    before = (tmp_path / "spending.log").read_bytes()
    request = play.ask(model="s", opens=True, case_id="a")
    assert play.paid(request, 10, 10)
    play.answer(request, "ok", Feedback(tokens=20, tokens_out=10))
    file.close()
    assert (tmp_path / "spending.log").read_bytes() == before
