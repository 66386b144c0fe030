"""Load this package's modules without assertion rewriting, and protect them from a test's fakes.

pytest rewrites the asserts in every package that has a plugin, to explain failures. The asserts in
this package check only its own invariants, so they need no explanation. The rewriting takes a fifth
of the CPU time that a run needs before its first request. The reason is that pytest then loads each
of 130 modules from its own cache.

A test's fake clock or file system must not affect this package. `system.clock` and `system.disk`
look up the functions that read clocks and write records when they are imported, so later fakes do
not replace them. `keep_from_fakes` makes pyfakefs skip the other modules of this package.
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
    """A module finder for the modules of this package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: object = None
    ) -> ModuleSpec | None:
        """The spec of a module in this package; None for any other, even one with the same name."""
        spec = PathFinder.find_spec(name, path) if name.startswith(_OWN) else None
        return spec if spec is not None and (spec.origin or "").startswith(_FOLDER) else None


def import_without_rewrite(config: pytest.Config) -> None:
    """Keep pytest from rewriting modules in this package until `config` is unconfigured.

    Called when `config` has read its options, after pytest has installed its own finder.
    """
    finder = OwnModules()
    sys.meta_path.insert(0, finder)

    def load_as_before() -> None:
        with suppress(ValueError):
            sys.meta_path.remove(finder)

    config.add_cleanup(load_as_before)


def keep_from_fakes() -> None:
    """Make pyfakefs skip all loaded modules of this package. Called before each item's set-up."""
    faking = sys.modules.get("pyfakefs.fake_filesystem_unittest")
    if faking is not None:
        _leave_alone(faking, len(sys.modules))


@lru_cache(maxsize=1)
def _leave_alone(faking: ModuleType, _n_loaded: int) -> None:
    """Search the loaded modules, but only if their number has changed: 1000 modules take 0.1 ms."""
    own = (module for name, module in sys.modules.copy().items() if name.startswith(_OWN))
    faking.Patcher.SKIPMODULES.update(own)
