"""Who gets a free seat: cases that have begun, and new ones as far as it would be idle."""

from __future__ import annotations

import random

from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool


def seats(n: int) -> Play:
    """Two models on one key, as a case's own and one in a role."""
    lanes = [lane("a", "k", "k", model="m"), lane("b", "k", "k", model="u")]
    return Play(pool(lanes, Limit("k", "key", workers=n)), now_s=0.0)


class Conversations:
    """Cases of so many requests each, every second one to a role, with pauses between them."""

    def __init__(self, n_seats: int, lengths: list[int], *, pause_s: float, spread: float) -> None:
        self.play = seats(n_seats)
        self.play.on_grant = self.granted
        self.left = dict(enumerate(lengths))
        self.rng, self.pause_s, self.spread = random.Random(43), pause_s, spread
        self.n_answered = self.n_at_half = 0
        self.took_s = 0.0

    def run(self) -> float:
        """Seconds until the last answer."""
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


def test_conversations_that_have_begun_come_first():
    lengths = [12 + n % 3 for n in range(40)]
    play = Conversations(20, lengths, pause_s=0.2, spread=0.2)
    # With seats for new cases whenever one was free: 18.9 s, and half ended at 80 %.
    assert play.run() < 18.9
    assert play.n_at_half < 0.65 * sum(lengths)


def test_many_conversations_leave_hardly_a_seat_idle():
    play = Conversations(20, [13] * 200, pause_s=0.2, spread=0.2)
    work_s = 200 * 13 * 0.5 / 20
    # The last of them have the seats for themselves, and pause.
    assert play.run() < 1.1 * work_s


def test_cases_of_one_request_wait_for_nobody():
    play = Conversations(20, [1] * 400, pause_s=0.0, spread=0.0)
    assert play.run() < 400 / 20 * 0.5 + 0.02


def test_cases_that_think_for_long_keep_no_seats():
    """What comes back after more than half of an answer's time is no reason to wait."""
    play = Conversations(4, [6] * 40, pause_s=8.0, spread=0.2)
    # 4.5 s a request alone: with all of them open at once it is hardly more than one of them.
    assert play.run() < 40.0


def test_seat_is_kept_for_half_the_time_of_an_answer_and_then_a_case_begins():
    play = seats(1)
    first, new = play.ask(case_id="a"), play.ask(case_id="b")
    play.wait(1.0)
    play.back(first)
    play.wait(0.499)
    assert play.waiting == {new}
    play.wait(0.002)
    assert play.lane(new) == "p/a/k"
    assert play.status("p/a/k").waited_s.keys() == {"k (workers)"}


def test_seat_is_kept_no_longer_when_its_case_ends_or_its_worker_dies():
    for over in (lambda play: play.end("a"), lambda play: play.leave("gw0")):
        play = seats(1)
        first, new = play.ask(case_id="a"), play.ask("gw1", case_id="b")
        play.wait(1.0)
        play.back(first)
        assert play.waiting == {new}
        over(play)
        assert play.lane(new) == "p/a/k"


def test_seat_goes_to_who_comes_back_in_any_role():
    play = seats(1)
    first, new = play.ask(case_id="a"), play.ask(case_id="b")
    play.wait(1.0)
    play.back(first)
    play.wait(0.3)
    again = play.ask(model="u", opens=False, case_id="a")
    assert (play.lane(again), play.waiting) == ("p/b/k", {new})


def test_free_seats_beyond_those_that_are_wanted_again_go_to_new_cases():
    play = seats(3)
    first = [play.ask(case_id="a"), play.ask(case_id="b")]
    play.wait(1.0)
    play.back(first[0])
    new = [play.ask(case_id=name) for name in "cd"]
    assert (play.lane(new[0]), play.waiting) == ("p/a/k", {new[1]})


def test_requests_refused_or_unsent_keep_no_seat():
    for outcome in ("unsent", "timeout"):
        play = seats(1)
        first, new = play.ask(case_id="a"), play.ask(case_id="b")
        play.wait(1.0)
        play.back(first, outcome)
        assert play.lane(new) == "p/a/k", outcome
