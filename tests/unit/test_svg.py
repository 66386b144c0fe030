"""Drawings in cells of a page's tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.report.pages.svg import Scale, axis, bar, interval, strip, up_to


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-6, 1e9))
def test_ticks_are_round_few_and_within_the_scale(low, width):
    scale = Scale(low, low + width)
    found = scale.ticks()
    assert len(found) <= 6
    for tick in found:
        assert low - width / 1e6 <= tick <= low + width * (1 + 1e-6)


@pytest.mark.parametrize(
    ("high", "ticks"), [(12.4, [0, 5, 10]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.003, [0, 1, 2, 3])]
)
def test_everyday_scales_have_the_usual_ticks(high, ticks):
    factor = high / 3 if high < 0.1 else 1
    assert up_to([high]).ticks() == pytest.approx([one * factor for one in ticks])


def test_axis_has_a_text_for_each_tick():
    assert re.findall(r">([^<]+)</text>", axis("seconds", Scale(-1, 1))) == [
        "-1", "-0.5", "0", "0.5", "1",
    ]  # fmt: skip


def test_foreign_text_is_escaped():
    drawn = bar(up_to([1]), 1, '"><script>\u202e')
    assert "<script" not in drawn
    assert "\u202e" not in drawn
    assert drawn.count(">") == drawn.count("<")


def test_interval_is_drawn_only_if_known_and_zero_only_within_the_scale():
    assert "interval" not in interval(Scale(0, 1), 0.5, None, None, "")
    both = interval(Scale(-1, 1), 0.5, 0.25, 0.75, "")
    assert re.findall(r'class="(\w+)" x1="(.*?)" x2="(.*?)"', both) == [
        ("zero", "50.00%", "50.00%"), ("interval", "62.50%", "87.50%"),
    ]  # fmt: skip


def test_strip_is_as_high_as_its_values_and_has_a_text_for_each():
    drawn = strip([0, 0, 0.5, 2], ["a", "b", "c", "d"], "lane: ", 0.5, ticks=[1, 1, 3])
    assert 'd="M0 100V100h2V50h1V0h1V100z"' in drawn
    assert 'd="M1.5 0V100M3.5 0V100"' in drawn
    assert 'data-values="a|b|c|d" data-step="0.5"' in drawn


def test_times_after_the_end_of_a_strip_are_left_out():
    drawn = strip([1, 1], ["", ""], "", 1.0, spans=[("paused", 1.0, 9.0), ("opened", 3.0, 4.0)])
    assert re.findall(r'class="(paused|opened)" x1="(.*?)" x2="(.*?)"', drawn) == [
        ("paused", "50.00%", "100.00%")
    ]
