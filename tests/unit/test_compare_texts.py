from __future__ import annotations

import pytest

from pytest_ultrapar.compare.figures import figure_text, interval_text
from pytest_ultrapar.report.sections import Section, markdown_lines, text_lines

SECTION = Section(
    title="cells of a_b",
    header=("model", "n"),
    rows=(("a|b\x1b[31m", "12"), ("c_d", "3")),
    notes=("limits of <a>: *all*",),
)


@pytest.mark.parametrize(
    ("metric", "value", "form", "text"),
    [
        ("throughput", 5.31, "absolute", "5.3/s"),
        ("throughput", -0.132, "relative", "-13.2 %"),
        ("throughput", -0.0001, "relative", "+0.0 %"),
        ("latency.p95", 0.4513, "absolute", "451 ms"),
        ("latency.p95", 2.5, "absolute", "2.50 s"),
        ("latency.p95", -0.25, "difference", "-250 ms"),
        ("speedup", 3.14, "absolute", "3.1x"),
        ("solved_rate", 0.7, "absolute", "0.700"),
        ("score.workflow", -0.05, "difference", "-0.050"),
        ("tokens_in", 1234.5, "absolute", "1,234"),
        ("coverage", None, "absolute", "-"),
    ],
)
def test_figure_is_shown_in_its_unit(metric, value, form, text):
    assert figure_text(metric, value, form) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.141, -0.123, "-14.1 to -12.3 %"),
        (None, 0.1, "up to +10.0 %"),
        (0.1, None, "from +10.0 %"),
        (None, None, "unknown"),
    ],
)
def test_interval_shows_which_end_is_unknown(low, high, text):
    assert interval_text("throughput", low, high, "relative") == text


def test_interval_of_two_units_names_both():
    assert interval_text("makespan", 50, 300, "absolute") == "50.0 s to 5 min 00 s"
    assert interval_text("makespan", 0.5, 2, "absolute") == "500 ms to 2.00 s"
    assert interval_text("makespan", 1.5, 2, "absolute") == "1.50 to 2.00 s"


def test_control_characters_are_escaped_on_a_terminal():
    text = "\n".join(text_lines([SECTION, SECTION]))
    assert "\x1b" not in text
    assert "a|b\\x1b[31m  12" in text
    assert text.count("cells of a_b") == 2


def test_markdown_in_names_is_escaped():
    lines = list(markdown_lines([SECTION]))
    assert lines[0] == "### cells of a_b"
    assert lines[4].startswith("| a\\|b\\x1b[31m ")
    assert lines[-1] == "- limits of \\<a>: \\*all\\*"
