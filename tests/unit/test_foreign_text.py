"""The kept part of texts that are too large, and the cost of finding it."""

from __future__ import annotations

import pytest

from pytest_ultrapar.apis.failure import LARGEST_TEXT, beginning
from pytest_ultrapar.engine.captured_output import EpisodeOutput

_DROPPED = 4096


class Watched(str):
    """Counts the characters that are read one by one."""

    __slots__ = ("n_looked_at",)

    def __getitem__(self, place):
        if isinstance(place, int):
            self.n_looked_at = getattr(self, "n_looked_at", 0) + 1
        return super().__getitem__(place)


def test_only_dropped_characters_are_read():
    text = Watched("x" * (LARGEST_TEXT + 1))
    assert len(beginning(text)) == LARGEST_TEXT - _DROPPED
    assert text.n_looked_at == _DROPPED


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * LARGEST_TEXT, LARGEST_TEXT),
        ("x" * 2 * LARGEST_TEXT, LARGEST_TEXT - _DROPPED),
        ("x " * LARGEST_TEXT, LARGEST_TEXT - 2 * _DROPPED),
        (" " * 2 * LARGEST_TEXT, 0),
        ("x" * 100 + " " * LARGEST_TEXT, 0),
    ],
)
def test_dropped_part_has_as_many_visible_characters_as_a_secret(text, kept):
    assert beginning(text) == text[:kept]


def test_output_is_cut_once_and_nothing_is_added_after_the_cut():
    output = EpisodeOutput()
    for add in (output.add_print, output.add_log):
        add("x" * LARGEST_TEXT)
        add("y")
        add("late")
    for kept in (lambda: output.stdout, lambda: output.log):
        assert kept() == "x" * (LARGEST_TEXT - _DROPPED)
