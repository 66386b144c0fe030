"""Cut, wrong, hostile or huge answers: rows 4, 5 and 6 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.played import between, play

UNREADABLE = ["short_json", "nested", "too_large"]


@pytest.mark.slow
def test_answer_that_cannot_be_read_is_malformed(project):
    unreadable = [f"{fault}:1 it" for fault in UNREADABLE]
    played = play(project, between(unreadable), "--ultrapar-max-attempts=2", keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 5 * len(unreadable)}
    for prompt in unreadable:
        assert played.classes(prompt) == ["malformed", "ok"]
        assert played.statuses(prompt)[1] == 200
        assert played.billed(prompt) == [True, False]


def test_interim_answers_are_skipped(project):
    played = play(project, ["interim it"], "--ultrapar-max-attempts=1")
    assert played.result.ret == 0
    assert played.classes("interim it") == ["ok"]
    assert played.statuses("interim it") == [200]
