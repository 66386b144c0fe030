"""Make Python collect garbage rarely during a run, and without visiting pytest's items."""

from __future__ import annotations

import atexit
import gc
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    import pytest


_THRESHOLDS = (50_000, 20, 20)
"""The arguments for `gc.set_threshold`. CPython's defaults are (700, 10, 10), and (2000, 10, 10)
from 3.13 on. 50,000 new container objects take about 10 MB. With a threshold of 10,000, which 300
running episodes soon reach, the engine's thread spent a tenth of its time on collections that found
nothing."""
_UNFROZEN = 1_000
"""If at most this many objects are frozen, no other code has called `gc.freeze()`, which freezes
about 50,000 objects in any pytest process. CPython 3.12 itself starts with 375 frozen objects."""

_spared: WeakSet[pytest.Config] = WeakSet()
"""The configurations for which `spare_items` has frozen all existing objects."""


def collect_rarely(config: pytest.Config) -> None:
    """Collect garbage rarely until `config` is unconfigured.

    Called when pytest is configured. Reference cycles from tests and episodes are still collected,
    so that resources that were never closed are reported. The user's settings take precedence:
    thresholds are only raised, never lowered, and if garbage collection is disabled, it stays
    disabled.
    """
    # A collection at exit would waste time (0.2 s for 3,000 items), because the process ends
    # anyway.
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


def unfreeze_at_end(config: pytest.Config) -> None:
    """Unfreeze the objects that `spare_items` froze, in the very last cleanup of `config`.

    Called before any plugin is configured, because the cleanup that is added first runs last. The
    objects are thus still frozen during pytest's own last collection
    (`_pytest.unraisableexception.cleanup`), which would otherwise take a second for 50,000 items.
    """

    def thaw() -> None:
        if config in _spared:
            _spared.remove(config)
            gc.unfreeze()

    config.add_cleanup(thaw)


def spare_items(config: pytest.Config) -> None:
    """Exclude all existing objects from garbage collection until `config` is unconfigured.

    `unfreeze_at_end` undoes this. Called on the main thread when pytest has collected the tests.
    The call has no effect if other code has frozen objects, because those must not be unfrozen.
    """
    if gc.get_freeze_count() <= _UNFROZEN:
        gc.freeze()
        _spared.add(config)


def spare_reports(config: pytest.Config) -> None:
    """Collect garbage now, and exclude the remaining objects from pytest's own last collections.

    Called when all items have been reported: in an xdist worker when its session finishes, and
    elsewhere while another process makes the tables. At its end, pytest collects garbage twice
    (`_pytest.unraisableexception`). Each of these collections would visit sixteen objects per item,
    which takes 0.5 s for 50,000 items. Resources that were never closed are found here instead, and
    pytest reports them in the same place as usual.
    """
    if config in _spared:
        gc.collect()
        gc.freeze()


def _freeze_at_exit() -> None:
    gc.freeze()
