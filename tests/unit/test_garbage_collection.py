"""Garbage collection skips pytest's items, and settings of other code stay as they are."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pytest_ultrapar.session.garbage_collection import collect_rarely, spare_items, unfreeze_at_end

CPYTHON = (700, 10, 10)


class Config:
    """The part of pytest's `Config` that is needed. A test unconfigures it."""

    def __init__(self) -> None:
        self.cleanups = []
        unfreeze_at_end(self)

    def add_cleanup(self, cleanup) -> None:
        self.cleanups.append(cleanup)

    def unconfigure(self) -> None:
        for cleanup in reversed(self.cleanups):
            cleanup()


@pytest.fixture(autouse=True)
def _own() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # CPython 3.12 starts with a few hundred frozen objects
    gc.set_threshold(*CPYTHON)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_items_are_frozen_until_the_end_of_pytest():
    config = Config()
    collect_rarely(config)
    spare_items(config)
    assert gc.get_threshold() == (50_000, 20, 20)
    assert gc.get_freeze_count() > 0
    config.unconfigure()
    assert gc.get_threshold() == CPYTHON
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    ("theirs", "during"),
    [
        ((100_000, 50, 100), (100_000, 50, 100)),
        ((5_000, 50, 5), (50_000, 50, 20)),
        ((2_000, 10, 0), (50_000, 20, 20)),
        ((0, 10, 10), (0, 10, 10)),
    ],
    ids=["higher", "higher in part", "another release", "never"],
)
def test_thresholds_are_raised_and_never_lowered(theirs, during):
    gc.set_threshold(*theirs)
    config = Config()
    collect_rarely(config)
    assert gc.get_threshold() == during
    config.unconfigure()
    assert gc.get_threshold() == theirs


def test_thresholds_that_other_code_sets_meanwhile_stay():
    config = Config()
    collect_rarely(config)
    gc.set_threshold(5_000, 7, 7)
    config.unconfigure()
    assert gc.get_threshold() == (5_000, 7, 7)


@pytest.mark.cpu_s(3)  # visits all objects of this process
def test_objects_that_other_code_froze_stay_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    config = Config()
    later = [[n] for n in range(1_000)]
    spare_items(config)
    assert gc.get_freeze_count() <= frozen
    config.unconfigure()
    assert 0 < gc.get_freeze_count() <= frozen
    assert len(later) == 1_000


def test_freezing_at_exit_keeps_the_users_own_registration():
    script = (
        "import atexit, gc\n"
        "class Config:\n"
        "    def add_cleanup(self, cleanup): cleanup()\n"
        "atexit.register(lambda: print(calls))\n"
        "calls, gc.freeze = [], lambda: calls.append(1)\n"
        "atexit.register(gc.freeze)\n"
        "from pytest_ultrapar.session.garbage_collection import collect_rarely\n"
        "collect_rarely(Config())\n"
        "collect_rarely(Config())\n"
        "calls.clear()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[1, 1]"
