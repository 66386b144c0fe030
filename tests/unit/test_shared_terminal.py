"""Pytest's output and a view below it, as a terminal emulator displays them."""

from __future__ import annotations

import os

import pyte
import pytest
from _pytest._io import TerminalWriter
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.coordinator.shared_terminal import SharedTerminal

COLUMNS, LINES = 24, 10


class Screens:
    """Two screens: pytest and the view write to one, and only pytest writes to the other."""

    def __init__(self):
        self._read, write = os.pipe()
        self.file = os.fdopen(write, "w", encoding="utf-8")
        writer = TerminalWriter(self.file)
        writer.fullwidth = COLUMNS
        self.writer = writer
        self.shared = SharedTerminal(writer)
        self.both, self.pytests = (pyte.Screen(COLUMNS, LINES) for _ in range(2))
        self._streams = pyte.ByteStream(self.both), pyte.ByteStream(self.pytests)
        for screen in (self.both, self.pytests):
            # As a terminal driver does.
            screen.set_mode(pyte.modes.LNM)

    def see(self):
        os.write(self.file.fileno(), b"\0")  # so that the read does not block
        self._streams[0].feed(os.read(self._read, 1 << 20))

    def write(self, text):
        self.writer.write(text)
        self._streams[1].feed(text.encode())
        self.see()

    def others_write(self, text):
        os.write(self.file.fileno(), text.encode())
        self._streams[1].feed(text.encode())
        self.see()

    def draw(self, lines):
        self.shared.draw(lines)
        self.see()

    def close(self):
        self.shared.close()
        self.see()
        self.file.close()
        os.close(self._read)


@pytest.fixture
def screens():
    made = Screens()
    yield made
    if not made.file.closed:
        made.close()


PIECES = [".", "F", "é", "e\u0301", "\n", "\rcollecting", "x" * 11, "\x1b[31mred\x1b[0m"]
WRITTEN = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
ONWARDS = WRITTEN.filter(lambda text: "\r" not in text)
"""Texts that leave nothing to the right of the cursor."""
DRAWN = st.lists(st.text("view ", max_size=COLUMNS - 1), max_size=LINES - 2)


def assert_pytests_alone(screens):
    """Check that only pytest's output is visible. A view may have scrolled its first lines away."""
    shown, wanted = (
        [line for line in screen.display if line.strip()]
        for screen in (screens.both, screens.pytests)
    )
    assert shown == (wanted[-len(shown) :] if shown else [])
    assert screens.both.cursor.x == screens.pytests.cursor.x


@given(st.lists(st.tuples(WRITTEN, DRAWN), max_size=8))
def test_output_of_pytest_is_unchanged_by_a_view(steps):
    screens = Screens()
    for written, drawn in steps:
        screens.write(written)
        assert_pytests_alone(screens)
        screens.draw(drawn)
    screens.close()
    assert_pytests_alone(screens)


@given(st.lists(st.tuples(ONWARDS, DRAWN), max_size=4), st.text("others", max_size=COLUMNS + 2))
def test_direct_writes_of_others_stay_and_end_their_line(steps, text):
    screens = Screens()
    for written, drawn in steps:
        screens.write(written)
        screens.draw(drawn)
    with screens.shared.lent():
        screens.draw(["not now"])
        screens.others_write(text)
    is_empty = not screens.pytests.cursor.x
    screens.write("" if is_empty else "\n")
    screens.see()
    assert screens.both.cursor.x == 0
    screens.draw(["view"])
    screens.close()
    assert_pytests_alone(screens)


def test_view_is_drawn_below_an_unfinished_line(screens):
    screens.write("test_it.py ..")
    screens.draw(["asking", "lane"])
    assert [line.rstrip() for line in screens.both.display[:3]] == [
        "test_it.py ..",
        "asking",
        "lane",
    ]
    screens.draw(["asking more"])
    screens.write("F")
    assert [line.rstrip() for line in screens.both.display[:3]] == ["test_it.py ..F", "", ""]


def test_permanent_line_ends_an_unfinished_line(screens):
    screens.writer.write("..")
    screens.shared.line("asking")
    screens.writer.write(".")
    screens.see()
    assert [line.rstrip() for line in screens.both.display[:3]] == ["..", "asking", "."]
    assert screens.writer.width_of_current_line == 1


def test_close_restores_the_writers_file(screens):
    screens.shared.close()
    screens.shared.close()
    assert screens.writer._file is screens.file
