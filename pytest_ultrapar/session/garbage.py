"""The interpreter's garbage collection in a run: seldom, and never over pytest's items."""

from __future__ import annotations

import atexit
import gc
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    import pytest


_THRESHOLDS = (50_000, 20, 20)
"""CPython's own are (700, 10, 10), from 3.13 on (2000, 10, 10). What 50,000 new containers hold is
some 10 MB. With 10,000, which 300 episodes under way have in no time, a tenth of the engine's
thread was spent on looking, and nothing was found."""
_NOBODYS = 1_000
"""So many frozen objects are no sign of a user's `gc.freeze()`, which takes some 50,000 in any
pytest process: CPython 3.12 begins with 375."""

_spared: WeakSet[pytest.Config] = WeakSet()
"""For which all that lived then was frozen."""


def collect_seldom(config: pytest.Config) -> None:
    """Look for garbage seldom until `config` is unconfigured.

    Called at configuration. Cycles that tests and episodes leave are collected as ever, so that
    what is never closed is still reported. What a user has set goes first: thresholds are raised
    and never lowered, and a collection that is off stays off.
    """
    # A process that ends looks for garbage in what ends with it anyway: 0.2 s for 3,000 items.
    atexit.unregister(_freeze_at_exit)
    atexit.register(_freeze_at_exit)
    before = gc.get_threshold()
    if not 0 < before[0] < _THRESHOLDS[0]:
        return
    raised = tuple(map(max, before, _THRESHOLDS))
    gc.set_threshold(*raised)

    def restore() -> None:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

    config.add_cleanup(restore)


def thaw_last(config: pytest.Config) -> None:
    """Have all that `spare_items` freezes thawed at the very end of `config`.

    Called before any plugin is configured, as what is added first is called last: after pytest's
    own last look for what was never closed (`_pytest.unraisableexception.cleanup`), which among
    50,000 items takes a second.
    """

    def thaw() -> None:
        if config in _spared:
            _spared.remove(config)
            gc.unfreeze()

    config.add_cleanup(thaw)


def spare_items(config: pytest.Config) -> None:
    """Leave what lives now out of garbage collection until the end of `config` (`thaw_last`).

    Called on the main thread when pytest has collected, and without effect where somebody else has
    frozen objects: those are not to be thawed.
    """
    if gc.get_freeze_count() <= _NOBODYS:
        gc.freeze()
        _spared.add(config)


def spare_reports(config: pytest.Config) -> None:
    """Look for garbage now, and leave what is none out of pytest's own last looks.

    Called when all items are reported; without xdist and in the controller, while this process only
    waits. pytest looks twice at the end (`_pytest.unraisableexception`), each time at the sixteen
    objects that it keeps of each item: twice 0.5 s of 50,000. What was never closed is found here,
    and shown where they would show it.
    """
    if config in _spared:
        gc.collect()
        gc.freeze()


def _freeze_at_exit() -> None:
    gc.freeze()
