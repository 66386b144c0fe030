"""The lines about daily limits at the start and the end of a run."""

from __future__ import annotations

from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.coordinator.daily_limits_left import DayLeft, day_end_lines, day_lines


def test_key_on_several_servers_has_one_line_with_the_least_units_left():
    counted = [DailyLimit("lab/key0", "rpd", 60.0, name, "/state") for name in ("here", "there")]
    other = DailyLimit("lab/key1", "rpd", 60.0, "else", "/state")
    days = [DayLeft(counted[0], 200, 150), DayLeft(counted[1], 200, 90), DayLeft(other, 50, 50)]
    assert list(day_lines(days)) == [
        "requests per day for lab/key0: 90 of 200 left",
        "requests per day for lab/key1: 50 of 50 left",
    ]
    assert list(day_end_lines(days, (), "run")) == [
        "requests per day for lab/key0: 90 of 200 left (0 sent by this run)",
        "requests per day for lab/key1: 50 of 50 left (0 sent by this run)",
    ]
