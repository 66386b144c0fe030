"""The live view of a run on a terminal, read by a terminal emulator."""

from __future__ import annotations

import re

import pytest

from tests.light import PYTEST
from tests.terminals import Terminal

pytestmark = pytest.mark.slow

SUITE = """
import sys

@pytest.mark.parametrize("prompt", [f"slow 0.3 yes {n}" for n in range(12)])
def test_it(answer, prompt):
    print(f"printed {prompt} printed")
    assert not prompt.endswith(" 3"), "an answer that was wrong"
"""
UNCAPTURED = """
import time

@pytest.mark.parametrize("prompt", [f"slow 0.3 yes {n}" for n in range(12)])
def test_it(answer, prompt, capsys):
    with capsys.disabled():
        print(f"printed {prompt}, ", end="", flush=True)
        time.sleep(0.6)
        print("slowly", flush=True)
"""
HEAD = "in flight"


@pytest.fixture
def terminal(project):
    """A function that runs the suite in a terminal with these options."""
    opened = []

    def run(*options, columns=80, lines=30, n_cases=12, suite=SUITE, **environ):
        project.suite(suite.replace("range(12)", f"range({n_cases})"))
        command = [*PYTEST, "--ultrapar-pool=pool.toml", "--ultrapar-report=off", *options]
        found = Terminal(
            command, project.pytester.path, columns=columns, lines=lines, environ=environ
        )
        opened.append(found)
        return found

    yield run
    for each in opened:
        each.__exit__()


def heads(lines):
    """The first lines of the view's part on lanes."""
    return [line for line in lines if line.startswith("lane ") and HEAD in line]


def is_view(lines):
    return bool(heads(lines)) and any("ETA" in line for line in lines)


@pytest.mark.parametrize(("workers", "n"), [("-n0", 40), ("-n2", 120)])
def test_view_shows_lanes_models_and_failures_and_leaves_nothing_behind(terminal, workers, n):
    shown = terminal(workers, n_cases=n)
    lines = shown.until(lambda lines: is_view(lines) and any("failed" in line for line in lines))
    text = "\n".join(lines)
    assert re.search(rf"^running: \d+/{n} graded, ETA ", text, re.MULTILINE)
    assert re.search(r"^p/m/key0 +\S+ +\d/4\b", text, re.MULTILINE)
    assert re.search(rf"^m +\d+/{n} +\d+\.\d %, \d+\.\d to ", text, re.MULTILINE)
    assert re.search(r"^failed  .*AssertionError: an answer that", text, re.MULTILINE)
    assert max(map(len, lines)) <= 80
    last = "\n".join(shown.end())
    assert not heads(last.splitlines())
    assert f"{n} cases: {n - 1} solved, 1 unsolved" in last
    assert re.search(rf"^=+ .*{n - 1} solved.* in .*=$", last, re.MULTILINE)


def test_test_that_disables_capture_has_the_terminal_to_itself(terminal, project):
    shown = terminal("-n0", columns=70, lines=60, n_cases=8, suite=UNCAPTURED)
    text = "\n".join(shown.end())
    for n in range(8):
        assert re.search(
            rf"^(test_suite.py )?printed slow 0.3 yes {n}, slowly$", text, re.MULTILINE
        )
    assert not heads(text.splitlines())


def test_resized_terminal_has_one_view(terminal):
    shown = terminal("-n0", n_cases=60)
    shown.until(is_view)
    for columns, lines in ((60, 20), (132, 40), (40, 12), (80, 24)):
        shown.resize(columns, lines)
        mark = len(shown.raw)
        found = shown.until(lambda found, mark=mark: is_view(found) and len(shown.raw) > mark + 500)
        assert len(heads(found)) == 1
        assert max(map(len, found)) <= columns
    assert "59 solved" in "\n".join(shown.end())


def test_pytests_output_appears_complete_above_the_view(terminal):
    shown = terminal("-n0", "-v", columns=100, lines=150, n_cases=40)
    shown.until(is_view)
    text = "\n".join(shown.end())
    (printed,) = re.findall(r"-+ Captured stdout call -+\n(.*?)\n[=-]{9}", text, re.DOTALL)
    assert printed == "printed slow 0.3 yes 3 printed", "the section has only the test's output"
    raw = shown.raw.decode()
    for number in range(40):
        assert f"test_it[m-slow 0.3 yes {number}-r0]" in raw
    written = re.findall(
        r"^test_suite.py::test_it\[m-slow 0\.3 yes (\d+)-r0\] (\w+) +\[ *\d+%\]$",
        text,
        re.MULTILINE,
    )
    assert len(written) >= 20
    assert set(written) <= {(str(n), "FAILED" if n == 3 else "SOLVED") for n in range(40)}


@pytest.mark.parametrize(
    ("options", "environ", "has_view", "has_colour"),
    [
        ((), {"NO_COLOR": "1"}, True, False),
        (("--color=no",), {}, True, False),
        ((), {"TERM": "dumb"}, False, False),
        (("--ultrapar-live=off",), {}, False, True),
        (("--ultrapar-live=line",), {}, False, True),
        (("-q",), {}, False, True),
        (("-s",), {}, False, True),
        (("--capture=sys",), {}, False, True),
    ],
)
def test_option_selects_the_view(terminal, options, environ, has_view, has_colour):
    shown = terminal("-n0", *options, n_cases=24, **environ)
    shown.end()
    raw = shown.raw.decode()
    assert ("lane  " in raw) == has_view
    assert bool(re.search(r"\x1b\[[0-9;]*m", raw)) == has_colour
    draws = bool(re.search(r"\x1b\[\d*[JAK]", raw))
    one_line = "--ultrapar-live=line" in options or "-q" in options
    assert draws == (has_view or one_line)
    assert ("running: " in raw) == (has_view or one_line)
    if "-s" in options:
        assert all(f"printed slow 0.3 yes {n} printed" in raw for n in range(24))


def test_debugger_has_the_terminal_to_itself(terminal):
    shown = terminal("-n0", "--pdb", n_cases=60)
    shown.until(lambda lines: any(line.startswith("(Pdb)") for line in lines))
    before = shown.lines
    shown.press(b"p 6 * 7\n")
    lines = shown.until(lambda lines: "42" in lines and lines[-1].startswith("(Pdb)"))
    assert heads(before) == heads(lines) == []
    shown.press(b"q\n")
    shown.end()


def test_ctrl_c_leaves_the_terminal_to_the_shell(terminal):
    shown = terminal("-n0", n_cases=60)
    shown.until(is_view)
    shown.press(b"\x03")
    last = "\n".join(shown.end())
    assert shown.process.returncode == 2
    assert not heads(last.splitlines())
    assert "stopped early" in last
    assert "continue with" in last


def test_output_to_a_file_contains_only_lines(project):
    project.suite(SUITE)
    text = project.run("-n0", "--color=yes").stdout.str()
    assert not re.search(r"\x1b\[\d*[JAK]", text)
