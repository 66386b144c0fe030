"""Seats of a dead worker stay taken while the server may still run its requests."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.lanes import TELLING_ANSWERS
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.broker_play import Play
from tests.unit.pool_texts import real

SEATS = 4


class WorkingServer(Play):
    """A server that keeps working after a client has left, and its clients, in virtual time.

    Attributes:
        most_at_work: The most requests that it ran at the same time.
    """

    def __init__(self, provider: str = "", model: str = "") -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "pool.toml")
            path.write_text(real(f"per_key = {{ workers = {SEATS} }}\n{provider}", model=model))
            super().__init__(load_pool(path, environ={}, overrides=Overrides()), self._begin)
        self.most_at_work = 0
        self._takes_s: dict[int, float] = {}
        self._asked_s = 0.0
        self._ends_s: dict[int, float] = {}

    def send(self, takes_s: float, worker: str = "gw0") -> int:
        """Ask for a lease for a request that takes so long after the grant."""
        self._asked_s = takes_s
        number = self.ask(worker)
        self._takes_s[number] = takes_s
        return number

    def _begin(self, number: int) -> None:
        self._ends_s[number] = self.now_s + self._takes_s.get(number, self._asked_s)
        at_work = sum(end_s > self.now_s for end_s in self._ends_s.values())
        self.most_at_work = max(self.most_at_work, at_work)

    def answer_all(self) -> None:
        """Let time pass until no lease is held and no request waits."""
        while self.leases or self.next_s() < math.inf:
            due = [self._ends_s[number] for number in self.leases]
            self.wait(max(0.0, min([*due, self.next_s()]) - self.now_s))
            for number in [one for one in self.leases if self._ends_s[one] <= self.now_s]:
                self.back(number)

    def lose(self, worker: str) -> float:
        """Let the worker die; return the seconds until another worker gets a seat."""
        died_s = self.now_s
        first, *_ = [self.send(self._asked_s, "heir") for _ in range(SEATS)]
        self.leave(worker)
        while first not in self.leases:
            assert self.step()
        return self.now_s - died_s


def with_answers(n: int, takes_s: float, **pool: str) -> WorkingServer:
    """A server that gave so many answers and has requests of a worker on all seats."""
    server = WorkingServer(**pool)
    for _ in range(n):
        server.send(takes_s)
    server.answer_all()
    for _ in range(SEATS):
        server.send(takes_s)
    return server


@pytest.mark.parametrize("takes_s", [0.5, 30.0])
def test_seats_of_a_dead_worker_come_back_after_the_lanes_longest_answer(takes_s):
    server = with_answers(TELLING_ANSWERS, takes_s)
    assert server.lose("gw0") == pytest.approx(takes_s)
    server.answer_all()
    assert server.most_at_work == SEATS


def test_few_answers_do_not_change_the_default_time():
    assert with_answers(TELLING_ANSWERS - 1, 30.0).lose("gw0") == pytest.approx(10.0)
    assert with_answers(0, 30.0).lose("gw0") == pytest.approx(10.0)


def test_requests_without_an_answer_do_not_change_the_default_time():
    server = WorkingServer()
    for _ in range(TELLING_ANSWERS):
        number = server.send(0.0)
        server.wait(3.0)
        server.back(number, "cancelled")
    for _ in range(SEATS):
        server.send(3.0)
    assert server.lose("gw0") == pytest.approx(10.0)


def test_no_seat_stays_taken_beyond_the_deadline_of_a_request():
    server = with_answers(TELLING_ANSWERS, 25.0, provider="timeout_s = 20")
    assert server.lose("gw0") == pytest.approx(20.0)


def test_latency_hint_overrides_the_times_of_answers():
    server = with_answers(TELLING_ANSWERS, 30.0, model="latency_hint_s = 3")
    assert server.lose("gw0") == pytest.approx(6.0)


# Eighths of a second, whose sums are exact.
durations_s = st.integers(1, 400).map(lambda eighths: eighths / 8)


@given(st.lists(durations_s, min_size=TELLING_ANSWERS, max_size=TELLING_ANSWERS + 5), st.data())
def test_server_never_exceeds_the_limit_if_no_request_takes_longer_than_before(times, data):
    server = WorkingServer()
    for takes_s in times:
        server.send(takes_s)
    server.answer_all()
    drawn = st.sampled_from(times)
    for number in range(3 * SEATS):
        server.send(data.draw(drawn), f"gw{number % 2}")
    server.wait(data.draw(durations_s))
    server.leave("gw0")
    server.answer_all()
    assert server.most_at_work <= SEATS
