"""What a run says at its start of the limits per day."""

from __future__ import annotations

from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.coordinator.claims.day_left import DayLeft, day_end_lines, day_lines


def test_key_on_several_servers_has_one_line_with_what_all_of_them_allow():
    counted = [DailyLimit("lab/key0", "rpd", 60.0, name, "/state") for name in ("here", "there")]
    other = DailyLimit("lab/key1", "rpd", 60.0, "else", "/state")
    days = [DayLeft(counted[0], 200, 150), DayLeft(counted[1], 200, 90), DayLeft(other, 50, 50)]
    assert list(day_lines(days)) == [
        "requests per day of lab/key0: 90 of 200 left",
        "requests per day of lab/key1: 50 of 50 left",
    ]
    assert list(day_end_lines(days, (), "run")) == [
        "requests per day of lab/key0: 90 of 200 left (0 sent by this run)",
        "requests per day of lab/key1: 50 of 50 left (0 sent by this run)",
    ]
