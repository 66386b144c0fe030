"""The cases that become ready when other cases end, in any process."""

from __future__ import annotations

from contextlib import closing

from pytest_ultrapar.session.case_dependencies import CaseDependencies
from pytest_ultrapar.store.journal_history import RecoveredIndex

PEERS = {5: {"m": "a", "n": "b"}, 6: {"m": "a", "n": "b"}, 7: {"m": "c"}}


def test_case_is_ready_when_all_cases_that_it_waits_for_have_ended_in_any_process(tmp_path):
    with closing(RecoveredIndex(tmp_path)) as own, closing(RecoveredIndex(tmp_path)) as others:
        here, elsewhere = CaseDependencies(own, PEERS), CaseDependencies(others, PEERS)
        here.wait(5)
        here.note("a", None)
        # A case that runs again ends twice. A case that no other waits for is not noted.
        elsewhere.note("a", None)
        elsewhere.note("z", None)
        assert not here.has_ready()
        elsewhere.note("b", None)
        assert here.has_ready()
        # The case stays ready until it is taken.
        assert here.has_ready()
        assert list(here.waiting) == [5]
        assert here.take_ready() == [5]
        assert not here.has_ready()
        # The other worker's cases have ended by now.
        here.wait(6)
        here.wait(7)
        assert here.take_ready() == [6]
        assert list(here.waiting) == [7]
        here.waiting.clear()
        elsewhere.note("c", None)
        assert here.take_ready() == []
        assert list(own.known("awaited")) == ["a", "b", "c"]
