from __future__ import annotations

import math

import pytest

from pytest_ultrapar.lanes.window import FixedCap, Observation, Window


class Halving:
    """A controller that halves its cap at every 429: the seam that adaptive mode uses."""

    def __init__(self, cap: int) -> None:
        self._cap = cap

    def cap(self) -> float:
        return self._cap

    def observe(self, observation: Observation) -> None:
        if observation.outcome == "rate":
            self._cap = max(1, self._cap // 2)


def test_window_is_full_at_its_cap_and_free_again_after_a_return():
    window = Window(FixedCap(2))
    window.take()
    assert not window.is_full
    window.take()
    assert window.is_full
    window.give_back()
    assert not window.is_full
    assert (window.in_flight, window.peak) == (1, 2)


def test_window_refuses_to_go_above_its_cap_or_below_zero():
    window = Window(FixedCap(1))
    with pytest.raises(ValueError, match="no seat is taken"):
        window.give_back()
    window.take()
    with pytest.raises(ValueError, match="all 1 seats are taken"):
        window.take()


def test_window_without_a_cap_is_never_full_and_never_loaded():
    window = Window(FixedCap(None))
    for _ in range(1000):
        window.take()
    assert not window.is_full
    assert window.load == 0.0
    assert window.cap == math.inf


def test_fixed_cap_stays_whatever_is_observed():
    window = Window(FixedCap(4))
    window.observe(Observation("rate", 0.0, 1.0, 4))
    assert window.cap == 4


def test_window_stays_shut_until_enough_seats_returned_after_a_cut():
    window = Window(Halving(4))
    for _ in range(4):
        window.take()
    window.observe(Observation("rate", 0.0, 1.0, 4))
    for n_left in (3, 2):
        window.give_back()
        assert window.is_full, n_left
    window.give_back()
    assert not window.is_full
