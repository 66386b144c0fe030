"""Repetitions: `20`, or `20x3` for the first three values of the counted parameter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.setting_values import parse_repeats
from pytest_ultrapar.pool.settings import Repeats

PLACE = Location("command line", "--ultrapar-repeats")
IN_BOUNDS = st.integers(1, 100_000)


@given(n=IN_BOUNDS, n_first=IN_BOUNDS)
def test_repeats_are_read_as_written(n, n_first):
    assert parse_repeats(PLACE, f"{n}") == Repeats(n)
    assert parse_repeats(PLACE, f"{n}x{n_first}") == Repeats(n, n_first)
    assert parse_repeats(PLACE, str(Repeats(n, n_first).setting)) == Repeats(n, n_first)
    assert Repeats(n).setting == n


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "must be >= 1 (got 0)"),
        ("-1", "must be >= 1 (got -1)"),
        ("0x3", "must be >= 1 (got 0)"),
        ("100001", "must be <= 100000 (got 100001)"),
        ("20x0", "must be >= 1 (got 0)"),
        ("20x-2", "must be >= 1 (got -2)"),
    ],
)
def test_number_out_of_range_is_refused(text, message):
    with pytest.raises(ConfigError) as refusal:
        parse_repeats(PLACE, text)

    assert str(refusal.value) == f"command line: --ultrapar-repeats {message}"


@pytest.mark.parametrize(
    "text", ["", "20x", "x3", "axb", "20X3", "20x3x1", "2.5", "20 x 3", "٣", "9" * 19, "1\n", "+1"]
)
def test_invalid_form_is_refused_with_an_example(text):
    with pytest.raises(
        ConfigError, match='must be a number of repetitions such as "20", or "20x3"'
    ):
        parse_repeats(PLACE, text)
