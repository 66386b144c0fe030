"""Workers that are regarded as stopped, in virtual time."""

from __future__ import annotations

from pytest_ultrapar.coordinator.worker_watch import WorkerSilence

LOOK_S = 1.0
PATIENCE_S = 10.0


class Watched:
    """Workers whose signs the test controls, and a watcher that checks them."""

    def __init__(self, *workers: str) -> None:
        self.silence = WorkerSilence(PATIENCE_S, LOOK_S)
        self.now_s = 0.0
        self.signs: dict[str, float | None] = dict.fromkeys(workers, 0.0)

    def look(self, *lively: str, after_s: float = LOOK_S) -> list[str]:
        self.now_s += after_s
        self.signs |= dict.fromkeys(lively, self.now_s)
        return self.silence.check(self.signs, self.now_s)

    def looks(self, n: int, *lively: str) -> set[str]:
        return {worker for _ in range(n) for worker in self.look(*lively)}


def test_only_a_silent_worker_is_named_and_only_once():
    watched = Watched("gw0", "gw1")
    assert watched.looks(11, "gw0") == set()
    assert watched.look("gw0") == ["gw1"]


def test_any_sign_restarts_the_time():
    watched = Watched("gw0")
    for _ in range(5):
        assert watched.looks(10) == set()
        assert watched.look("gw0") == []


def test_time_during_which_the_watcher_was_suspended_does_not_count():
    watched = Watched("gw0", "gw1")
    assert watched.looks(5) == set()
    for _ in range(3):
        # All processes were suspended for an hour. One worker resumes later than the watcher.
        assert watched.look(after_s=3600) == []
        assert watched.look("gw0", "gw1") == []
    assert watched.look(after_s=3600) == []
    assert watched.looks(20, "gw0") == {"gw1"}


def test_worker_without_any_sign_from_the_start_is_named():
    watched = Watched("gw0")
    watched.signs["gw0"] = None
    assert watched.looks(11) == set()
    assert watched.look() == ["gw0"]


def test_worker_that_joins_later_has_the_full_time():
    watched = Watched("gw0")
    watched.looks(50, "gw0")
    watched.signs["gw1"] = None
    assert watched.looks(11, "gw0") == set()
    assert watched.look("gw0") == ["gw1"]


def test_worker_that_left_is_forgotten():
    watched = Watched("gw0")
    watched.looks(9)
    del watched.signs["gw0"]
    watched.look()
    watched.signs["gw0"] = None
    assert watched.looks(11) == set()
