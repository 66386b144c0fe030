from __future__ import annotations

import math

import pytest

from pytest_ultrapar.broker.throttles import Seats


def test_seats_are_full_at_their_cap_and_free_again_after_a_return():
    seats = Seats(2)
    seats.take()
    assert not seats.is_full
    seats.take()
    assert seats.is_full
    seats.give_back()
    assert not seats.is_full
    assert (seats.in_flight, seats.peak) == (1, 2)


def test_seats_refuse_to_go_above_their_cap_or_below_zero():
    seats = Seats(1)
    with pytest.raises(ValueError, match="no seat is taken"):
        seats.give_back()
    seats.take()
    with pytest.raises(ValueError, match="all 1 seats are taken"):
        seats.take()


def test_seats_without_a_cap_are_never_full():
    seats = Seats(math.inf)
    for _ in range(1000):
        seats.take()
    assert not seats.is_full


def test_seats_stay_taken_until_enough_seats_returned_after_the_cap_was_lowered():
    seats = Seats(4)
    for _ in range(4):
        seats.take()
    seats.cap = 2
    for n_left in (3, 2):
        seats.give_back()
        assert seats.is_full, n_left
    seats.give_back()
    assert not seats.is_full
