"""How our own modules are loaded while pytest runs: as any others, without rewritten asserts.

pytest rewrites the asserts of every package that has a plugin, so that a plugin's assert can say
what it compared. Ours are about our own invariants. Rewritten they cost a run more than a tenth of
its CPU before the first request, as each of 130 modules is read from a cache of pytest's own.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

_OWN = "pytest_ultrapar."


class _OwnModules:
    """A finder of Python's for the modules of this package."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name.startswith(_OWN) else None


def load_plainly(plugins: pytest.PytestPluginManager) -> None:
    """From now on until `load_as_before`, pytest does not rewrite what is imported of ours."""
    rewriting: Any = plugins.rewrite_hook
    # With `--assert=plain` pytest has no finder, and there is nothing to be gained.
    if rewriting in sys.meta_path and _OwnModules not in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(rewriting), _OwnModules)


def load_as_before() -> None:
    """Let pytest load the rest of ours."""
    if _OwnModules in sys.meta_path:
        sys.meta_path.remove(_OwnModules)
