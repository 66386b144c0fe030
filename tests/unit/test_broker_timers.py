from __future__ import annotations

from pytest_ultrapar.broker.timers import Timer, TimerQueue


def test_wakes_are_due_in_order_of_time_then_of_insertion():
    queue = TimerQueue()
    wakes = [Timer() for _ in range(4)]
    for wake, at_s in zip(wakes, (3.0, 1.0, 2.0, 1.0), strict=True):
        queue.ensure(wake, at_s)
    assert queue.next_s() == 1.0
    assert [queue.pop_due(5.0) for _ in range(5)] == [wakes[1], wakes[3], wakes[2], wakes[0], None]


def test_wake_is_not_due_before_its_time():
    queue = TimerQueue()
    queue.ensure(Timer(), 2.0)
    assert queue.pop_due(1.999) is None
    assert queue.next_s() == 2.0


def test_ensure_makes_a_wake_earlier_and_never_later():
    queue = TimerQueue()
    wake = Timer()
    queue.ensure(wake, 2.0)
    queue.ensure(wake, 5.0)
    assert queue.next_s() == 2.0
    queue.ensure(wake, 1.0)
    assert queue.pop_due(9.0) is wake
    assert queue.pop_due(9.0) is None
    assert queue.next_s() is None


def test_move_replaces_the_time():
    queue = TimerQueue()
    wake = Timer()
    queue.ensure(wake, 2.0)
    queue.move(wake, 7.0)
    assert queue.pop_due(6.0) is None
    assert queue.next_s() == 7.0
    queue.move(wake, 2.0)
    assert queue.pop_due(2.0) is wake
    assert queue.next_s() is None
