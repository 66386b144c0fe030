from __future__ import annotations

import math

import pytest

from pytest_ultrapar.broker.limits import Window


def test_window_is_full_at_its_cap_and_free_again_after_a_return():
    window = Window(2)
    window.take()
    assert not window.is_full
    window.take()
    assert window.is_full
    window.give_back()
    assert not window.is_full
    assert (window.in_flight, window.peak) == (1, 2)


def test_window_refuses_to_go_above_its_cap_or_below_zero():
    window = Window(1)
    with pytest.raises(ValueError, match="no seat is taken"):
        window.give_back()
    window.take()
    with pytest.raises(ValueError, match="all 1 seats are taken"):
        window.take()


def test_window_without_a_cap_is_never_full_and_never_loaded():
    window = Window(math.inf)
    for _ in range(1000):
        window.take()
    assert not window.is_full
    assert window.load == 0.0


def test_window_stays_shut_until_enough_seats_returned_after_its_cap_was_lowered():
    window = Window(4)
    for _ in range(4):
        window.take()
    window.cap = 2
    for n_left in (3, 2):
        window.give_back()
        assert window.is_full, n_left
    window.give_back()
    assert not window.is_full
