"""Free seats go to the cases that began first. Other cases get only seats that stay idle."""

from __future__ import annotations

import random
from statistics import mean

from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool


def seats(n: int) -> Play:
    """Two models on one key: the model of the case and the model of a role."""
    lanes = [lane("a", "k", "k", model="m"), lane("b", "k", "k", model="u")]
    return Play(pool(lanes, Limit("k", "key", workers=n)), now_s=0.0)


class Conversations:
    """Cases with these numbers of requests and a pause after each. Every second one is a role's."""

    def __init__(
        self, n_seats: int, lengths: list[int], *, pause_s: float, spread: float, seed: int = 43
    ) -> None:
        self.play = seats(n_seats)
        self.play.on_grant = self.granted
        self.left = dict(enumerate(lengths))
        self.rng, self.pause_s, self.spread = random.Random(seed), pause_s, spread
        self.n_answered = self.n_at_half = 0
        self.took_s = 0.0

    def run(self) -> float:
        """Play to the end and return the seconds until the last answer."""
        n_cases = len(self.left)
        self.n_half = n_cases // 2
        for case in list(self.left):
            self.play.ask(case_id=str(case))
        while self.left:
            assert self.play.step()
        return self.took_s

    def granted(self, request_id: int) -> None:
        answer_s = 0.5 * self.rng.uniform(1 - self.spread, 1 + self.spread)
        self.play.later(answer_s, self.answered, request_id)

    def answered(self, request_id: int) -> None:
        case = int(self.play.requests[request_id].case_id)
        self.took_s = self.play.now_s
        self.n_answered += 1
        self.left[case] -= 1
        self.play.back(request_id)
        if self.left[case]:
            self.play.later(self.rng.uniform(0, self.pause_s), self.ask, case)
            return
        del self.left[case]
        if len(self.left) == self.n_half:
            self.n_at_half = self.n_answered
        self.play.later(0.005, self.play.end, str(case))

    def ask(self, case: int) -> None:
        model = "mu"[self.left[case] % 2]
        self.play.ask(model=model, opens=False, case_id=str(case))


LENGTHS = [12 + n % 3 for n in range(40)]


def means(spread: float) -> tuple[float, float]:
    """The mean time of three runs, and the mean share of answers when half the cases are done."""
    runs = [Conversations(20, LENGTHS, pause_s=0.2, spread=spread, seed=seed) for seed in range(3)]
    took_s = mean(run.run() for run in runs)
    return took_s, mean(run.n_at_half / sum(LENGTHS) for run in runs)


def test_conversations_that_began_are_served_first():
    took_s, share = means(spread=0.2)
    # First come, first served: 18.6 s, and half ended at 80 %.
    assert took_s < 0.87 * 18.6
    assert share < 0.65


def test_answers_that_take_equally_long_cost_little():
    """All seats become free at the same time, and the seats of all thinking cases are kept."""
    took_s, share = means(spread=0.0)
    # First come, first served: 13.5 s, and half ended at 95 %.
    assert took_s < 1.18 * 13.5
    assert share < 0.65


def test_last_conversations_are_open_before_the_first_end():
    """With three times as many cases as seats, opened in order, the last ones would run alone."""
    play = Conversations(8, [13] * 24, pause_s=0.2, spread=0.2)
    assert play.run() < 1.15 * 24 * 13 * 0.5 / 8


def test_many_conversations_leave_few_seats_idle():
    play = Conversations(20, [13] * 200, pause_s=0.2, spread=0.2)
    work_s = 200 * 13 * 0.5 / 20
    # The last cases have all seats to themselves, and pause.
    assert play.run() < 1.1 * work_s


def test_cases_of_one_request_do_not_wait_for_others():
    play = Conversations(20, [1] * 400, pause_s=0.0, spread=0.0)
    assert play.run() < 400 / 20 * 0.5 + 0.02


def test_cases_with_long_pauses_keep_no_seats():
    """A case that pauses for more than half an answer's time keeps no seat."""
    play = Conversations(4, [6] * 40, pause_s=8.0, spread=0.2)
    # Each seat serves answers for 30 s, and the last case alone takes 27 s.
    assert play.run() < 48.0


def test_seat_is_kept_for_half_the_time_of_an_answer_and_then_given_to_a_new_case():
    play = seats(1)
    first, new = play.ask(case_id="a"), play.ask(case_id="b")
    play.wait(1.0)
    play.back(first)
    play.wait(0.499)
    assert play.waiting == {new}
    play.wait(0.002)
    assert play.lane(new) == "p/a/k"
    assert play.status("p/a/k").waited_s.keys() == {"k (workers)"}


def test_seat_is_released_when_its_case_ends_or_its_worker_dies():
    for over in (lambda play: play.end("a"), lambda play: play.leave("gw0")):
        play = seats(1)
        first, new = play.ask(case_id="a"), play.ask("gw1", case_id="b")
        play.wait(1.0)
        play.back(first)
        assert play.waiting == {new}
        over(play)
        assert play.lane(new) == "p/a/k"


def test_seat_goes_back_to_its_case_in_any_role():
    play = seats(1)
    first, new = play.ask(case_id="a"), play.ask(case_id="b")
    play.wait(1.0)
    play.back(first)
    play.wait(0.3)
    again = play.ask(model="u", opens=False, case_id="a")
    assert (play.lane(again), play.waiting) == ("p/b/k", {new})


def test_free_seats_that_no_open_case_needs_go_to_new_cases():
    play = seats(3)
    first = [play.ask(case_id=name) for name in "abc"]
    play.wait(1.0)
    for request in first:
        play.back(request)
    new = play.ask(case_id="d")
    assert play.waiting == {new}
    # Two cases came back to three free seats. The third may come back, too: one seat is kept.
    again = [play.ask(opens=False, case_id=name) for name in "ab"]
    assert (play.lane(again[0]), play.lane(again[1]), play.lane(new)) == ("p/a/k",) * 3


def test_case_without_a_place_waits_for_cases_with_one():
    play = seats(2)
    a, b = play.ask(case_id="a"), play.ask(case_id="b")
    play.wait(1.0)
    play.back(a)
    # The third case gets the seat of the first case.
    c = play.ask(case_id="c")
    assert play.lane(c) == "p/a/k"
    play.back(c)
    d = play.ask(case_id="d")
    extra = play.ask(opens=False, case_id="c")
    placed = play.ask(opens=False, case_id="a")
    assert play.waiting == {extra, placed}
    play.back(d)
    assert play.waiting == {extra}
    play.end("a")
    play.back(b)
    assert not play.waiting


def test_open_cases_without_a_place_come_before_new_ones():
    play = seats(1)
    play.back(play.ask(case_id="a"), "unsent")
    b = play.ask(case_id="b")
    busy = play.ask(opens=False, case_id="a")
    play.back(b)
    assert play.lane(busy) == "p/a/k"
    extra, new = play.ask(opens=False, case_id="b"), play.ask(case_id="c")
    # Two cases are open for one seat.
    play.back(busy, "unsent")
    assert (play.lane(extra), play.waiting) == ("p/a/k", {new})


def test_new_cases_come_before_cases_without_a_place_while_few_are_open():
    """At most two cases are open for each seat if cases pause, else one."""
    play = seats(2)
    for request in [play.ask(case_id=name) for name in "ab"]:
        play.wait(1.0)
        play.back(request)
    for name, opens in (("a", False), ("b", False), ("c", True)):
        play.back(play.ask(opens=opens, case_id=name), "unsent")
    busy = [play.ask(opens=False, case_id=name) for name in "ab"]
    extra, new = play.ask(opens=False, case_id="c"), play.ask(case_id="d")
    play.back(busy[0], "unsent")
    assert play.waiting == {extra}
    last = play.ask(case_id="e")
    play.back(busy[1], "unsent")
    assert (play.lane(new), play.waiting) == ("p/a/k", {last})


def test_few_more_cases_than_seats_are_open_without_pauses():
    play = Conversations(20, [13] * 60, pause_s=0.001, spread=0.2)
    most_open = 0

    def granted(request_id: int) -> None:
        nonlocal most_open
        begun = {one.case_id for n, one in play.play.requests.items() if n in play.play.granted}
        most_open = max(most_open, len(begun & {str(case) for case in play.left}))
        play.granted(request_id)

    play.play.on_grant = granted
    play.run()
    assert most_open < 25


def test_failed_or_unsent_requests_keep_no_seat():
    for outcome in ("unsent", "timeout"):
        play = seats(1)
        first, new = play.ask(case_id="a"), play.ask(case_id="b")
        play.wait(1.0)
        play.back(first, outcome)
        assert play.lane(new) == "p/a/k", outcome
