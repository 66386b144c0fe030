"""How our own modules are loaded while pytest runs: as any others, without rewritten asserts.

pytest rewrites the asserts of every package that has a plugin, so that a plugin's assert can say
what it compared. Ours are about our own invariants. Rewritten they cost a run a fifth of its CPU
before the first request, as each of 130 modules is read from a cache of pytest's own.

What a test fakes of its process stays the test's. Clocks and what writes records are taken when
our modules are imported (`system.clock`, `system.disk`); pyfakefs is told of the other files.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import pytest

_OWN = "pytest_ultrapar."
_FOLDER = str(Path(__file__).parents[1]) + os.sep


class OwnModules:
    """A finder of Python's for the modules of this package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: object = None
    ) -> ModuleSpec | None:
        """Where a module of ours is; None for all others, also for those of our name elsewhere."""
        spec = PathFinder.find_spec(name, path) if name.startswith(_OWN) else None
        return spec if spec is not None and (spec.origin or "").startswith(_FOLDER) else None


def load_plainly(config: pytest.Config) -> None:
    """Until `config` is unconfigured, pytest does not rewrite what is imported of ours.

    Called when `config` has read its options, and so after its own finder was put in front.
    """
    finder = OwnModules()
    sys.meta_path.insert(0, finder)

    def load_as_before() -> None:
        with suppress(ValueError):
            sys.meta_path.remove(finder)

    config.add_cleanup(load_as_before)


def keep_from_fakes() -> None:
    """Have pyfakefs leave our modules alone. Called before each set-up: any may just be loaded."""
    faking = sys.modules.get("pyfakefs.fake_filesystem_unittest")
    if faking is not None:
        _leave_alone(faking, len(sys.modules))


@lru_cache(maxsize=1)
def _leave_alone(faking: ModuleType, _n_loaded: int) -> None:
    """To look through a thousand modules takes 0.1 ms, and few are loaded after the first case."""
    own = (module for name, module in sys.modules.copy().items() if name.startswith(_OWN))
    faking.Patcher.SKIPMODULES.update(own)
