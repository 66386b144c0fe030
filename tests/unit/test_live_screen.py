"""A live view as lines of text: its parts, its size, and foreign texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_ultrapar.report.live_screen import LiveScreen
from pytest_ultrapar.report.live_view import Failure, LaneRow, LiveView, ModelRow, Spent, Use
from tests.unit.test_report_progress import after, of_several

PLAIN = LiveScreen(colour=False, encoding="utf-8")
COLOURED = LiveScreen(colour=True, encoding="utf-8")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def lane(name, waits_for="", trouble="", *, is_removed=False):
    seats, rate = Use(4, 5), Use(9.8, 10)
    return LaneRow(name, seats, rate, waits_for, trouble, is_removed)


LANES = [
    lane("lab/a/key0", trouble="lane lab/a/key0 was rate limited: paused for 3.00 s"),
    lane("lab/b/key0", trouble="key lab/key1 was refused: removed", is_removed=True),
    lane("lab/c/key2", waits_for="lab/key2 (qps)"),
    *(lane(f"lab/d{n}/key3") for n in range(297)),
]
MODELS = [
    ModelRow("llama", 17, 70, 16, 12, (0.505, 0.898)),
    *(ModelRow(f"qwen{n}", 0, 70, 0, 0, None) for n in range(7)),
]
FAILURES = [Failure(f"tests/test_it.py::test_it[{n}]", "infra", f"reason {n}") for n in range(5)]


def view(lanes=LANES, models=MODELS, failures=FAILURES, spent=None, waiting=41):
    state = after((0.0, 0), (10.0, 40), counts={"solved": 20, "infra": 2})
    return LiveView(
        state, (12.0, 130.0), 10.0, waiting, lanes, models, failures, spent, is_simulated=True
    )


def test_screen_of_80_columns_shows_every_part():
    lines = PLAIN.lines(view(spent=Spent(0.5, 2.25, "USD")), 79, 16)
    said = "\n".join(lines)
    assert lines[0].startswith("running: 22/100 graded, ETA 15.0 s (12.0 s to 2 min 10 s)  ██")
    assert lines[0].endswith("░  SIMULATED")
    assert lines[1] == "15 in flight, 41 waiting, 2 infra, 4.0/s, slowest: lab/key0 (qps)"
    assert lines[2] == "0.500 USD spent, about 2.25 USD expected in total"
    assert lines[4] == "lab/a/key0    was rate limited: paused for 3.00 s"
    assert lines[5] == "lab/b/key0    key lab/key1 was refused: removed"
    assert re.fullmatch(r"lab/c/key2 +████████░░ +4/5 +9.8/10  lab/key2 \(qps\)", lines[6])
    assert "+ 296 more" in said
    assert re.search(r"^llama +17/70  75.0 %, 50.5 to 89.8 %$", said, re.MULTILINE)
    assert "+ 6 more" in said
    assert "infra  tests/test_it.py::test_it[0]: reason 0" in said


@given(st.integers(1, 300), st.integers(0, 60), st.booleans())
def test_lines_fit_any_terminal(width, n_lines, colour):
    names = ["模型/" * 20, "x" * 90]
    lanes = [lane(name, waits_for=name) for name in names] + [lane(names[0], trouble=names[1])]
    models = [ModelRow(name, 1, 1, 1, 1, (0.2, 1.0)) for name in names]
    failures = [Failure(name, "error", name) for name in names]
    shown = view(lanes, models, failures, Spent(1.0, 2.0, "USD"))
    lines = (COLOURED if colour else PLAIN).lines(shown, width, n_lines)
    assert len(lines) <= n_lines
    assert all(cell_len(COLOUR.sub("", line)) <= width for line in lines)


@pytest.mark.parametrize(
    "text", ["\x1b[2J\x1b]0;title\x07", "a\nb\r\tc", "[bold red]x[/]", ":boom:"]
)
@pytest.mark.parametrize("screen", [PLAIN, COLOURED], ids=["plain", "coloured"])
def test_control_characters_in_foreign_texts_are_escaped(screen, text):
    """Names of models come from the pool, names of cases from tests, reasons from providers."""
    lanes = [lane(text, waits_for=text), lane("l", trouble=text)]
    models = [ModelRow(text, 1, 1, 1, 1, (0.2, 1.0))]
    lines = screen.lines(view(lanes, models, [Failure(text, "infra", text)]), 200, 40)
    said = COLOUR.sub("", "\n".join(lines))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said)
    harmless = {"\x1b[2J\x1b]0;title\x07": r"\x1b[2J\x1b]0;title\x07", "a\nb\r\tc": r"a b\x0d c"}
    assert said.count(harmless.get(text, text)) == 6


def test_screen_of_several_hosts_shows_all_hosts_and_the_share_of_this_one():
    shown = view(spent=Spent(0.5, 2.25, "USD"))._replace(progress=of_several(), eta_s=None)
    lines = PLAIN.lines(shown, 79, 16)
    assert lines[0].startswith("running on 3 hosts: 120/560 done, ETA 3 min 40 s  ██")
    assert lines[1] == "15 in flight, 41 waiting, 2.0/s in total, 32 graded here, 2 infra"
    assert lines[2] == "share 3 of 10 workers, 8 of 16 qps"
    assert lines[3] == "0.500 USD spent here, about 2.25 USD expected in total"


def test_lane_without_a_share_of_this_host_is_not_drawn_as_full():
    row = lane("lab/a/key0")._replace(seats=Use(0, 0), rate=Use(0.0, 0))
    lines = PLAIN.lines(view([row])._replace(progress=of_several()), 79, 16)
    assert re.fullmatch(r"lab/a/key0 +░{10} +no share +no share *", lines[4])


def test_bars_use_characters_that_the_terminal_can_show():
    lines = LiveScreen(colour=False, encoding="ascii").lines(view(), 79, 16)
    "\n".join(lines).encode("ascii")
    assert "########.." in lines[5]
