"""Budgets on the broker's limits: they are never exceeded, and no request waits forever."""

from __future__ import annotations

import errno
import os
import random
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.broker.budget import Budgets, spent_by_limit
from pytest_ultrapar.broker.protocol import BUDGET, Feedback, TokenBounds
from pytest_ultrapar.broker.spending_file import (
    ALL_LANES,
    SpendingFile,
    find_spending,
    read_spending,
)
from pytest_ultrapar.broker.wire import Paid, Pay
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.model import Limit, Pool
from pytest_ultrapar.pool.money import UNITS, ModelPrice
from tests.broker_play import Play
from tests.pools import lane, pool

DEAR, CHEAP = ModelPrice("p", "m", 2.0, 10.0), ModelPrice("q", "m", 0.5, 1.5)
SILENT = ("timeout", "transport", "overload", "malformed", "cancelled")
REFUSED = ("rate", "connect", "bad_request", "unsent")


def priced_pool(
    whole: float | None, of_p: float | None = None, of_key: float | None = None, **own: object
) -> Pool:
    """An expensive provider's lane and a cheap one's, with budgets of pool, provider and key."""
    limits = [
        Limit("pool", "pool", budget=whole, **own),
        Limit("p", "provider", budget=of_p),
        Limit("q/k", "key", budget=of_key),
    ]
    dear = lane("a", "k", "pool", "p")
    cheap = replace(
        lane("b", "k", "pool", "q/k"), lane_id="q/b/k", provider="q", orphan_grace_s=1.0
    )
    return replace(pool([dear, cheap], *limits), prices=(DEAR, CHEAP))


def price_of(lane_id: str) -> ModelPrice:
    return DEAR if lane_id.startswith("p/") else CHEAP


class Judge:
    """The spending, tracked independently: the most that every lease may cost until it is over."""

    def __init__(self, what: Pool, directory: Path) -> None:
        self.pool = what
        self.path = directory / "spending.log"
        self.spent: dict[str, int] = {"p/a/k": 0, "q/b/k": 0}
        self.begin()

    def begin(self) -> None:
        # By request; request ids start again in each session.
        self.most: dict[int, int] = {}
        self.tokens: dict[int, tuple[int, int]] = {}
        self.whose: dict[int, str] = {}
        self.is_paid: set[int] = set()
        self.begun: list[str] = []
        self.file = SpendingFile(self.path)
        self.budgets = Budgets(self.pool, self.file)
        self.play = Play(self.pool, self.granted, now_s=0.0, budgets=self.budgets)

    def granted(self, request_id: int) -> None:
        request, lease = self.play.requests[request_id], self.play.leases[request_id]
        self.whose[request_id], self.most[request_id] = lease.lane, 0
        if request.opens:
            self.begun.append(request.case_id)
        else:
            self.reserve(request_id, request.most.most_in, request.most.most_out)

    def reserve(self, request_id: int, most_in: int, most_out: int) -> None:
        self.is_paid.add(request_id)
        self.tokens[request_id] = most_in, most_out
        self.most[request_id] = price_of(self.whose[request_id]).cost(most_in, most_out)

    def pay(self, request_id: int, most_in: int, most_out: int) -> None:
        units = price_of(self.whose[request_id]).cost(most_in, most_out)
        path = next(one for one in self.pool.lanes if one.lane_id == self.whose[request_id]).limits
        left = [
            self.pool.limits[name].budget * UNITS - self.by_limit().get(name, 0)
            for name in path
            if self.pool.limits[name].budget is not None
        ]
        is_paid = self.play.paid(request_id, most_in, most_out)
        assert is_paid == (units <= min(left))
        if is_paid:
            self.reserve(request_id, most_in, most_out)

    def over(self, request_id: int, used: int) -> None:
        self.most.pop(request_id)
        self.spent[self.whose.pop(request_id)] += used

    def by_limit(self) -> dict[str, int]:
        lanes = dict(self.spent)
        for request_id, most in self.most.items():
            lanes[self.whose[request_id]] += most
        return spent_by_limit(self.pool, lanes)

    def check(self) -> None:
        for name, units in self.by_limit().items():
            budget = self.pool.limits[name].budget
            assert budget is None or units <= budget * UNITS, name
            if budget is not None:
                purse = self.budgets.purses[name]
                assert purse.spent + purse.reserved == units, name

    def answer(self, request_id: int, outcome: str, n_in: int, n_out: int) -> None:
        """Return a lease; a request without money is never sent."""
        if request_id not in self.is_paid:
            outcome = "unsent"
        used = price_of(self.whose[request_id]).cost(n_in, n_out)
        if outcome == "ok":
            feedback = Feedback(tokens=n_in + n_out, tokens_out=n_out)
        else:
            feedback = Feedback()
            used = self.most[request_id] if outcome in SILENT else 0
        self.over(request_id, used)
        self.play.answer(request_id, outcome, feedback)


class Spending(RuleBasedStateMachine):
    """Requests of all kinds on lanes of different prices, answers, lost workers, crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()

    @initialize(
        whole=st.sampled_from([0.001, 0.004, 0.02]),
        of_p=st.none() | st.sampled_from([0.0005, 0.01]),
        of_key=st.none() | st.sampled_from([0.0002, 0.002]),
        workers=st.none() | st.just(2),
    )
    def start(
        self, whole: float, of_p: float | None, of_key: float | None, workers: int | None
    ) -> None:
        what = priced_pool(whole, of_p, of_key, workers=workers)
        self.judge = Judge(what, Path(self.directory.name))

    @property
    def out(self) -> list[int]:
        return sorted(self.judge.play.leases)

    @property
    def unpaid(self) -> list[int]:
        return [one for one in self.out if one not in self.judge.is_paid]

    @rule(
        worker=st.sampled_from(["gw0", "gw1"]),
        most_in=st.integers(1, 300),
        most_out=st.integers(0, 300),
        kind=st.sampled_from(["opens", "follows", "p/a/k", "q/b/k"]),
        case=st.integers(0, 9**9),
    )
    def ask(self, worker: str, most_in: int, most_out: int, kind: str, case: int) -> None:
        if kind == "opens":
            self.judge.play.ask(worker, opens=True, case_id=str(case))
            return
        self.judge.play.ask(
            worker,
            most_in=most_in,
            most_out=most_out,
            opens=False,
            lane=kind if "/" in kind else None,
            case_id=str(case),
        )

    @precondition(lambda self: self.unpaid)
    @rule(data=st.data(), most_in=st.integers(1, 300), most_out=st.integers(0, 300))
    def pay(self, data: st.DataObject, most_in: int, most_out: int) -> None:
        self.judge.pay(data.draw(st.sampled_from(self.unpaid)), most_in, most_out)

    @precondition(lambda self: self.out)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["ok", "ok", "ok", *SILENT, *REFUSED]),
        share=st.floats(0, 1),
    )
    def answer(self, data: st.DataObject, outcome: str, share: float) -> None:
        request_id = data.draw(st.sampled_from(self.out))
        most_in, most_out = self.judge.tokens.get(request_id, (0, 0))
        self.judge.answer(request_id, outcome, int(most_in * share), int(most_out * share))

    @rule(worker=st.sampled_from(["gw0", "gw1"]))
    def die(self, worker: str) -> None:
        if any(self.judge.play.whose[n] == worker for n in self.judge.play.requests):
            lost = [n for n in self.out if self.judge.play.whose[n] == worker]
            for request_id in lost:
                self.judge.over(request_id, self.judge.most[request_id])
            if worker in self.judge.play._connected:
                self.judge.play.leave(worker)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.judge.play.wait(seconds)

    @rule()
    def crash(self) -> None:
        """Kill all processes; a resumed run counts requests in flight in full."""
        for request_id in self.out:
            self.judge.over(request_id, self.judge.most[request_id])
        self.judge.file.close()
        self.judge.begin()

    @invariant()
    def never_more_than_the_budget(self) -> None:
        if hasattr(self, "judge"):
            self.judge.check()
            in_file = spent_by_limit(self.judge.pool, read_spending(self.judge.path))
            assert {name: n for name, n in in_file.items() if n} == {
                name: n for name, n in self.judge.by_limit().items() if n
            }

    def teardown(self) -> None:
        if hasattr(self, "judge"):
            play = self.judge.play
            for _ in range(10_000):
                if self.out:
                    most = self.judge.tokens.get(self.out[0], (0, 0))
                    self.judge.answer(self.out[0], "ok", *most)
                    self.judge.check()
                elif play.waiting and play.next_s() < 1e8:
                    play.step()
                elif self.judge.begun:  # while it is open, its own money is reserved for it
                    play.end(self.judge.begun.pop())
                else:
                    break
            assert play.waiting == set()
            assert play.kinds <= {BUDGET, "no_lane"}
            self.judge.file.close()
        self.directory.cleanup()


TestSpending = Spending.TestCase


def first(play: Play, **wish: object) -> int:
    return play.ask(tokens=1, **{"most_in": 0, "most_out": 100, **wish})


def play_on(what: Pool) -> Play:
    return Play(what, budgets=Budgets(what))


def dear_play(budget: float) -> Play:
    what = priced_pool(budget)
    return play_on(replace(what, lanes=what.lanes[:1]))


def test_request_that_does_not_fit_waits_for_an_answer_and_is_then_refused():
    play = dear_play(0.0015)
    one, two = first(play, opens=False), first(play, opens=False)
    assert (play.lane(one), play.lane(two)) == ("p/a/k", None)
    play.answer(one, "ok", Feedback(tokens=50, tokens_out=50))
    assert play.lane(two) == "p/a/k"
    three = first(play, opens=False)
    assert three in play.waiting
    play.answer(two, "timeout", Feedback())
    # 50 tokens out and 100 that may have been billed: nothing is left.
    assert (play.waiting, play.kinds) == (set(), {BUDGET})
    assert play.refused[three].startswith(
        "the budget of pool (0.00150 USD, 0.00 USD left) does not cover"
    )


def test_money_that_an_answer_frees_is_used_while_others_are_in_flight():
    play = dear_play(0.0025)
    one, _, waits = (first(play, opens=False) for _ in range(3))
    assert waits in play.waiting
    play.answer(one, "ok", Feedback(tokens=10, tokens_out=10))
    assert play.lane(waits) == "p/a/k"


def test_refused_requests_cost_nothing():
    play = dear_play(0.001)
    for outcome in ("rate", "bad_request", "connect", "unsent"):
        request_id = first(play, opens=False)
        play.wait(60.0)
        assert play.lane(request_id) == "p/a/k", outcome
        play.answer(request_id, outcome, Feedback())
        play.wait(60.0)


def opening(play: Play, case_id: str) -> int:
    return play.ask(opens=True, case_id=case_id)


def test_opening_request_reserves_nothing_until_its_highest_cost_is_known():
    play = dear_play(0.0015)
    one, two = opening(play, "a"), opening(play, "b")
    purse = play.broker._table.budgets.purses["pool"]
    assert (play.lane(one), play.lane(two), purse.reserved) == ("p/a/k", "p/a/k", 0)
    assert play.paid(one, 0, 100)
    assert purse.reserved == 0.001 * UNITS
    assert not play.paid(two, 0, 100)
    play.back(two, "unsent")
    again = first(play, opens=False, case_id="b")
    assert again in play.waiting
    play.answer(one, "ok", Feedback(tokens=10, tokens_out=10))
    assert play.lane(again) == "p/a/k"
    play.answer(again, "ok", Feedback(tokens=20, tokens_out=20))
    assert (purse.spent, purse.reserved) == (0.0003 * UNITS, 0)


def test_opening_request_with_an_unknown_answer_costs_its_reservation():
    play = dear_play(0.0015)
    request = opening(play, "a")
    assert play.paid(request, 0, 100)
    play.answer(request, "timeout", Feedback())
    assert play.broker._table.budgets.purses["pool"].spent == 0.001 * UNITS


def test_missing_lease_is_not_paid():
    play = dear_play(0.0015)
    request = opening(play, "a")
    lease = play.leases[request]
    play.back(request, "unsent")
    assert play.say("gw0", Pay(lease.lease_id, TokenBounds(0, 1))) == Paid(False)
    assert play.broker._table.budgets.purses["pool"].reserved == 0


def test_wait_for_money_is_reported_as_such():
    play = dear_play(0.0015)
    one, two, three = (first(play, opens=False) for _ in range(3))
    play.wait(2.0)
    play.answer(one, "ok", Feedback(tokens=10, tokens_out=10))
    play.wait(3.0)
    play.answer(two, "ok", Feedback(tokens=1, tokens_out=1))
    assert play.lane(three) == "p/a/k"
    assert play.status("p/a/k").waited_s == {"budget": 2.0 + 5.0}


def test_answer_larger_than_its_reservation_counts_and_ends_the_spending():
    play = dear_play(0.0015)
    request = first(play, opens=False)
    play.answer(request, "ok", Feedback(tokens=200, tokens_out=200))
    assert play.broker._table.budgets.purses["pool"].left == -0.0005 * UNITS
    first(play, opens=False)
    assert play.kinds == {BUDGET}


def test_follow_up_goes_to_a_lane_that_still_has_money():
    play = play_on(priced_pool(1.0, of_p=0.0015))
    one = first(play, opens=False, lane="p/a/k")
    waits = first(play, opens=False, lane="p/a/k")
    assert play.lane(waits) == "q/b/k"
    play.back(waits)
    play.answer(one, "timeout", Feedback())
    assert play.lane(first(play, opens=False, lane="p/a/k")) == "q/b/k"
    assert not play.refused


def test_request_that_its_lane_cannot_pay_waits_for_a_paused_lane():
    play = play_on(priced_pool(0.001))
    dear, cheap = first(play, lane="p/a/k", most_out=1), first(play, lane="q/b/k", most_out=1)
    play.answer(dear, "ok", Feedback(tokens=1, tokens_out=1))
    play.answer(cheap, "rate", Feedback())
    late = first(play, lane="p/a/k")
    assert play.lane(late) is None
    play.wait(5)
    assert play.lane(late) == "q/b/k"


def few_at_a_time(n: int) -> Play:
    """One request at a time on the expensive lane, n on the cheap one, whose key has 0.0003."""
    what = priced_pool(None, of_key=0.0003)
    limits = {
        **what.limits,
        "p": Limit("p", "provider", workers=1),
        "q/k": replace(what.limits["q/k"], workers=n),
    }
    return play_on(replace(what, limits=limits))


def test_request_that_waits_for_the_lane_with_money_keeps_no_other_lane():
    """Found by hypothesis: the cheap lane was free, but was not checked again."""
    play = few_at_a_time(1)
    dear, cheap = first(play, lane="p/a/k"), first(play, lane="q/b/k", most_out=1)
    waits = first(play, opens=False, most_out=300)
    behind = first(play, opens=False, most_out=1)
    other = first(play, lane="q/b/k", most_out=1)
    play.answer(cheap, "ok", Feedback(tokens=1, tokens_out=1))
    assert (play.lane(other), play.waiting) == ("q/b/k", {waits, behind})
    play.answer(other, "ok", Feedback(tokens=1, tokens_out=1))
    assert play.waiting == {waits, behind}
    play.answer(dear, "ok", Feedback(tokens=1, tokens_out=1))
    assert (play.lane(waits), play.lane(behind)) == ("p/a/k", "q/b/k")


def test_case_begins_on_a_lane_that_has_no_money_for_a_waiting_request():
    play = few_at_a_time(1)
    first(play, lane="p/a/k")
    cheap = first(play, lane="q/b/k", most_out=1)
    waits, case = first(play, opens=False, most_out=300), opening(play, "a")
    play.answer(cheap, "ok", Feedback(tokens=1, tokens_out=1))
    assert (play.lane(case), play.waiting) == ("q/b/k", {waits})


def test_request_that_waits_for_the_lane_with_money_gets_money_that_another_returns():
    play = few_at_a_time(3)
    first(play, lane="p/a/k")
    large, small = (first(play, lane="q/b/k", most_out=n) for n in (150, 1))
    waits = first(play, opens=False, most_out=150)
    play.answer(small, "ok", Feedback(tokens=1, tokens_out=1))
    assert play.waiting == {waits}
    play.answer(large, "ok", Feedback(tokens=9, tokens_out=9))
    assert play.lane(waits) == "q/b/k"


def test_line_of_a_lane_without_money_moves_to_another_lane():
    play = play_on(priced_pool(None, of_p=0.001, of_key=0.0003))
    dear = first(play, opens=False, lane="p/a/k")
    cheap = [first(play, opens=False, lane="q/b/k") for _ in range(2)]
    waiting = first(play, opens=False, lane="p/a/k")
    assert waiting in play.waiting
    play.answer(dear, "timeout", Feedback())
    assert waiting in play.waiting
    for request_id in cheap:
        play.answer(request_id, "ok", Feedback(tokens=1, tokens_out=1))
    assert play.lane(waiting) == "q/b/k"


def begun(path: Path) -> SpendingFile:
    file = SpendingFile(path, {"p/a/k": 7})
    file.reserved(1, "p/a/k", 100)
    file.reserved(2, "q/b/k", 1000)
    file.settled(1, 30)
    file.settled(2, 456)
    return file


def test_changed_file_gives_at_least_the_spent_amount_or_is_refused(tmp_path):
    """Cut it, remove or repeat a line, or change a digit; then another session continues."""
    path = tmp_path / "spending.log"
    begun(path).close()
    whole = path.read_bytes()
    true = {"p/a/k": 37, "q/b/k": 456}
    assert read_spending(path) == true
    lines = whole.split(b"\n")
    damaged = [whole[:at] for at in range(len(whole))]
    for at, line in enumerate(lines):
        damaged.append(b"\n".join(lines[:at] + lines[at + 1 :]))
        damaged.append(b"\n".join([*lines[: at + 1], *lines[at:]]))
        damaged += [
            b"\n".join([*lines[:at], changed, *lines[at + 1 :]])
            for found in re.finditer(rb"\d|;", line)
            if (changed := line[: found.start()] + b"1" + line[found.end() :]) != line
        ]
    n_refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            again = SpendingFile(path)
        except ResultsError:
            n_refused += 1
            continue
        spent = again.spent
        assert spent.get(ALL_LANES, 0) >= 493 or all(spent[lane] >= n for lane, n in true.items())
        again.reserved(2, "p/a/k", 5)
        again.settled(2, 1)
        again.close()
        found = find_spending(path)
        assert found.spent == {**spent, "p/a/k": spent.get("p/a/k", 0) + 1}
        assert not found.trouble
    # Files whose first line was changed.
    assert n_refused <= len(lines[0]) + 40


@pytest.mark.parametrize("second", ["pwrite", "write"])
def test_file_is_whole_after_a_kill_between_a_line_and_the_sum(tmp_path, monkeypatch, second):
    path = tmp_path / "spending.log"
    file = begun(path)
    if second == "write":
        file.reserved(3, "p/a/k", 2000)
    monkeypatch.setattr(os, second, lambda _, data, *__: len(data))
    if second == "write":
        file.settled(3, 1500)
    else:
        file.reserved(3, "p/a/k", 2000)
    found = find_spending(path)
    assert (found.spent, found.trouble) == ({"p/a/k": 2037, "q/b/k": 456}, "")


def test_file_of_an_earlier_version_continues_with_checksums(tmp_path):
    path = tmp_path / "spending.log"
    old = "\nbegin;\nreserve 1 100 p/a/k;\nsettle 1 30;\nreserve 2 5 q/b/k;\nsettle 2"
    path.write_text(old)
    SpendingFile(path, run_id="r1").close()
    found = find_spending(path)
    assert found == ({"p/a/k": 30, "q/b/k": 5}, "r1", "")
    assert path.read_text().startswith("spending r1 ")


@pytest.mark.parametrize("n_written", [0, 1, 9, 11])
def test_line_cut_by_a_full_disk_damages_neither_the_sum_nor_the_next_line(
    tmp_path, monkeypatch, n_written
):
    path = tmp_path / "spending.log"
    file = begun(path)
    file.reserved(3, "p/a/k", 2000)
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if not data[n_written:]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:n_written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResultsError, match="cannot record spending"):
        file.settled(3, 1500)
    monkeypatch.undo()
    assert read_spending(path) == {"p/a/k": 2037, "q/b/k": 456}
    file.reserved(4, "p/a/k", 50)
    file.settled(4, 40)
    assert read_spending(path) == {"p/a/k": 2077, "q/b/k": 456}
    file.close()


def test_spending_of_earlier_sessions_is_read_completely_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "spending.log"

    def crash(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", crash)
    monkeypatch.setattr(os, "write", crash)
    with pytest.raises(ResultsError):
        SpendingFile(path, {"p/a/k": 7, "q/b/k": 9})
    monkeypatch.undo()
    file = SpendingFile(path, {"p/a/k": 7, "q/b/k": 9})
    file.close()
    assert read_spending(path) == {"p/a/k": 7, "q/b/k": 9}


def test_spending_of_missing_lanes_counts_for_their_provider_and_key():
    what = priced_pool(1.0, 1.0, 1.0)
    assert spent_by_limit(what, {"p/gone/k": 1, "q/gone/k": 2, "x/y/z": 4}) == {
        "pool": 7,
        "p": 1,
        "p/k": 1,
        "q": 2,
        "q/k": 2,
        "x": 4,
        "x/z": 4,
    }


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 20))]
)
def test_random_run_stays_within_its_budget_and_is_finished_with_more_money(seed, tmp_path):
    """A run of 200 cases at random prices; each session has more money than the previous one."""
    rng = random.Random(seed)
    prices = [
        ModelPrice(name, "m", rng.choice([0.05, 0.15, 2.5]), rng.choice([0.4, 1.1, 15.0]))
        for name in "pq"
    ]
    need = 200 * max(price.cost(120, 80) for price in prices) / UNITS
    open_cases = {str(n): rng.randint(1, 3) for n in range(200)}
    true_spent, budget, n_sessions = 0, need * rng.uniform(0.05, 0.2), 0
    while open_cases:
        n_sessions += 1
        what = replace(priced_pool(round(budget, 6), workers=rng.randint(1, 20)), prices=prices)
        file = SpendingFile(tmp_path / "spending.log")
        spent = Session(what, file, open_cases, rng).run(true_spent)
        true_spent = spent
        assert true_spent <= round(budget, 6) * UNITS
        file.close()
        budget *= 2
    assert n_sessions > 1


class Session:
    """A session of a run: episodes of up to three requests, as engines send them."""

    def __init__(
        self, what: Pool, file: SpendingFile, open_cases: dict[str, int], rng: random.Random
    ) -> None:
        self.rng, self.open_cases, self.turns = rng, open_cases, {}
        self.most: dict[int, tuple[int, int]] = {}
        self.price = {
            lane.lane_id: price for lane, price in zip(what.lanes, what.prices, strict=True)
        }
        self.budgets = Budgets(what, file)
        self.play = Play(what, self.granted, now_s=0.0, budgets=self.budgets)
        self.spent = 0

    def run(self, spent: int) -> int:
        self.spent = spent
        for case_id in list(self.open_cases):
            self.ask(case_id, opens=True)
        while self.play.next_s() < 1e8:
            self.play.step()
        assert not self.play.waiting
        assert self.play.kinds <= {BUDGET}
        purse = self.budgets.purses["pool"]
        # Requests without an answer count in full, even if they cost less.
        assert self.spent <= purse.spent <= purse.amount
        assert purse.reserved == 0
        return self.spent

    def ask(self, case_id: str, *, opens: bool = False) -> None:
        if opens:
            self.play.ask(opens=True, case_id=case_id)
            return
        n_in, n_out = self.need()
        request_id = self.play.ask(opens=False, case_id=case_id, most_in=n_in, most_out=n_out)
        self.most[request_id] = n_in, n_out

    def need(self) -> tuple[int, int]:
        return self.rng.randint(10, 120), self.rng.randint(1, 80)

    def granted(self, request_id: int) -> None:
        # Before the play continues: the broker is busy at this moment.
        self.play.later(0.0, self.begun, request_id)

    def begun(self, request_id: int) -> None:
        request = self.play.requests[request_id]
        if request.opens:
            self.most[request_id] = most = self.need()
            if not self.play.paid(request_id, *most):
                self.play.back(request_id, "unsent")
                self.ask(request.case_id)
                return
        self.play.later(self.rng.uniform(0.1, 3), self.over, request_id)

    def over(self, request_id: int) -> None:
        lease = self.play.leases[request_id]
        case_id = self.play.requests[request_id].case_id
        most_in, most_out = self.most[request_id]
        n_in = self.rng.randint(1, most_in)
        n_out = self.rng.randint(0, most_out)
        used = self.price[lease.lane].cost(n_in, n_out)
        outcome = self.rng.choices(["ok", "timeout", "rate"], [8, 1, 1])[0]
        if outcome == "ok":
            self.spent += used
            self.play.answer(request_id, "ok", Feedback(tokens=n_in + n_out, tokens_out=n_out))
        else:
            # Billed, but the client does not know.
            self.spent += used if outcome == "timeout" else 0
            self.play.answer(request_id, outcome, Feedback())
            self.ask(case_id)
            return
        done = self.turns[case_id] = self.turns.get(case_id, 0) + 1
        if done >= self.open_cases[case_id]:
            del self.open_cases[case_id]
            self.play.end(case_id)
        else:
            self.ask(case_id)


class Unbounded:
    """A run without a bound on its answers, in virtual time: estimates as engines make them."""

    def __init__(self, budget: float | None, *, n_cases: int = 400) -> None:
        what = priced_pool(budget, workers=40)
        self.pool = replace(what, lanes=what.lanes[:1])
        counted = self.pool if budget is not None else priced_pool(1e6)
        self.estimates = TokenEstimates.of(counted)
        budgets = Budgets(self.pool) if budget is not None else None
        self.play = Play(self.pool, self.granted, now_s=0.0, budgets=budgets)
        self.rng, self.left, self.spent = random.Random(7), n_cases, 0
        self.needs = [(random.Random(n).uniform(1, 2), 30 + n % 30) for n in range(n_cases)]

    def run(self) -> float:
        for n in range(self.left):
            self.play.ask(opens=True, case_id=str(n))
        while self.left and self.play.next_s() < 1e8:
            self.play.step()
        assert not self.play.refused
        return self.play.now_s

    def granted(self, request_id: int) -> None:
        self.play.later(0.0, self.begun, request_id)

    def begun(self, request_id: int) -> None:
        request = self.play.requests[request_id]
        most = self.estimates.most("m", ASKED)
        if request.opens and not self.play.paid(request_id, *most):
            self.play.back(request_id, "unsent")
            wish = dict(zip(("most_in", "most_out", "n_guessed"), most, strict=True))
            self.play.ask(opens=False, case_id=request.case_id, **wish)
            return
        self.play.later(self.needs[int(request.case_id)][0], self.over, request_id)

    def over(self, request_id: int) -> None:
        case_id = self.play.requests[request_id].case_id
        n_out = self.needs[int(case_id)][1]
        self.spent += DEAR.cost(75, n_out)
        reply = Reply("", None, (), "stop", 75, n_out, "p/a/k", 1.0)
        self.estimates.learn("m", ASKED, reply, is_first=True)
        self.play.answer(request_id, "ok", Feedback(tokens=75 + n_out, tokens_out=n_out))
        self.play.end(case_id)
        self.left -= 1


ASKED = asked_of({"messages": [{"role": "user", "content": "x" * 300}]})


def test_run_with_a_budget_of_twice_its_cost_takes_no_longer_than_without():
    free = Unbounded(None)
    free_s = free.run()
    paid = Unbounded(2 * free.spent / UNITS)
    paid_s = paid.run()
    assert paid.spent == free.spent
    # The first requests, whose cost is unknown, may use fewer seats than there are.
    assert paid_s <= free_s + 2.0
    waited_s = paid.play.status("p/a/k").waited_s
    assert paid_s < 1.15 * free_s, waited_s


def test_first_answers_improve_the_estimates_of_later_requests():
    free = Unbounded(None, n_cases=40)
    free_s = free.run()
    paid = Unbounded(2 * free.spent / UNITS, n_cases=40)
    # Requests that have waited since before the first answer are estimated like new ones: with
    # their first estimates the run took 23 s.
    assert paid.run() <= 3 * free_s


def test_run_with_little_more_than_its_cost_is_finished():
    cost = Unbounded(None)
    cost.run()
    run = Unbounded(1.05 * cost.spent / UNITS)
    run.run()
    assert run.spent == cost.spent
