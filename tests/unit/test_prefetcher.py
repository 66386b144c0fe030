"""The order of episodes, and the items that return when the engine ends early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ultrapar.session.answer_source import PoolLanes
from pytest_ultrapar.session.collection import Collected
from pytest_ultrapar.session.prefetcher import Prefetcher


class StillPrefetcher(Prefetcher):
    """A prefetcher whose engine ends one case; the test ends the others."""

    n_open, lag_s = 0, 0.0

    def _start_engine(self) -> Any:
        self._engine = self  # type: ignore[assignment]
        return self

    def submit(self, works: list[Any]) -> None:
        self._on_ended([(works[1], "journal")])

    def _work(self, index: int) -> Any:
        return SimpleNamespace(index=index)


@pytest.fixture
def prefetcher() -> StillPrefetcher:
    cases = {0: "case 0", 1: "case 1", 2: "case 2"}
    runtime = SimpleNamespace(
        directory=None,
        recovered=SimpleNamespace(lookup=lambda _: None),
        group_of=lambda case_id: case_id[-1],
        options=SimpleNamespace(cluster_run=None),
    )
    settings = SimpleNamespace(worker="gw0")
    items = [SimpleNamespace(parent=None)] * len(cases)
    return StillPrefetcher(items, Collected(case_ids=cases), runtime, settings, PoolLanes())  # type: ignore[arg-type]


def test_item_is_not_run_again_if_its_episode_ends_after_the_engine_is_lost(prefetcher):
    prefetcher.put([0, 1, 2])
    prefetcher.close()
    assert prefetcher.take() == 1

    # An engine that ends early reports the loss first; its last episodes end later.
    prefetcher._on_lost(ConnectionError("the broker is gone"))
    prefetcher._on_ended([(SimpleNamespace(index=2), "journal")])
    prefetcher._on_ended([(SimpleNamespace(index=0), "journal")])
    assert sorted([prefetcher.take(), prefetcher.take()]) == [0, 2]
    assert prefetcher.take() is None


def test_item_whose_episode_ends_after_it_was_taken_is_returned_once(prefetcher):
    prefetcher.put([0, 1])
    prefetcher.close()
    assert prefetcher.take() == 1
    prefetcher._on_lost(ConnectionError("the broker is gone"))
    assert prefetcher.take() == 0
    prefetcher._on_ended([(SimpleNamespace(index=0), "journal")])
    assert prefetcher.take() is None


def test_cases_with_finished_episodes_are_counted_until_they_are_taken(prefetcher):
    prefetcher.put([0, 1, 2])
    assert prefetcher.n_ready() == {}
    assert prefetcher.take() == 1
    prefetcher._on_ended([(SimpleNamespace(index=0), "journal")])
    prefetcher._on_ended([(SimpleNamespace(index=2), "journal")])
    assert prefetcher.take() == 0
    assert prefetcher.n_ready() == {"2": 1}


def test_first_cases_are_submitted_before_the_last_are_prepared(prefetcher, monkeypatch):
    events = []

    def made_ready(index):
        events.append(index)
        return SimpleNamespace(index=index)

    def asked(works):
        events.append("asked")
        prefetcher._on_ended([(work, "journal") for work in works])

    monkeypatch.setattr("pytest_ultrapar.session.prefetcher._AT_ONCE", 2)
    monkeypatch.setattr(prefetcher, "_work", made_ready)
    monkeypatch.setattr(prefetcher, "submit", asked)
    prefetcher.put([0, 1, 2])
    prefetcher.close()
    assert [prefetcher.take() for _ in range(4)] == [0, 1, 2, None]
    assert events == [0, 1, "asked", 2, "asked"]


def test_first_episodes_begin_before_more_cases_are_prepared(prefetcher, monkeypatch):
    # As in a worker whose first cases have ended: the engine runs already.
    prefetcher.start()
    monkeypatch.setattr("pytest_ultrapar.session.prefetcher._AT_ONCE", 1)
    monkeypatch.setattr("pytest_ultrapar.session.prefetcher._YIELD_S", 0.0)
    n_looks, begun_after = 0, []

    def n_open(_):
        nonlocal n_looks
        n_looks += 1
        return int(n_looks > 3)

    monkeypatch.setattr(StillPrefetcher, "n_open", property(n_open))
    monkeypatch.setattr(prefetcher, "submit", lambda works: begun_after.append(n_looks))
    prefetcher.put([0, 1])
    prefetcher.start_episodes()
    assert begun_after[0] == 0
    assert begun_after[1] > 3
