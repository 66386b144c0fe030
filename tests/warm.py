"""Children of the tests that start in 10 ms, since this process has imported their modules.

A run in this process (`run_here`) starts `python -m pytest_ultrapar.analysis.compaction_child`,
which spends 0.6 s of CPU on imports, in some three hundred tests, and a simulated provider takes
0.4 s. `subprocess` forks in any case; `Warm` runs the module in that fork, instead of a new
interpreter. Tests of the start of a child, and all runs in their own processes, start children in
the ordinary way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import runpy
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from importlib.metadata import Distribution, PathDistribution, distributions
from pkgutil import walk_packages
from types import ModuleType
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import uvloop
from _pytest.fixtures import FixtureManager

import pytest_ultrapar

_WARM = {
    f"pytest_ultrapar.{name}" for name in ("analysis.compaction_child", "compare.gate", "simulator")
}
# A test that sets another one wants its children to import something else.
_PYTHONPATH = os.environ.get("PYTHONPATH")


class _Installed(PathDistribution):
    """The data of one package that pytest reads at each start, read once."""

    entry_points, files, metadata = (
        cached_property(getattr(PathDistribution, name).fget)
        for name in ("entry_points", "files", "metadata")
    )


@cache
def _installed() -> list[_Installed]:
    """All packages: finding them takes 0.03 s of CPU in each run here."""
    return [_Installed(one._path) for one in distributions()]


@cache
def _named(name: str) -> _Installed:
    return _Installed(_find(name)._path)


_find = Distribution.from_name
_look = FixtureManager.pytest_plugin_registered
_bare: WeakSet[Any] = WeakSet()
"""Plugins without a fixture: modules, and the classes of others."""
_OF_FIXTURES = ("_fixture_function_marker", "_pytestfixturefunction")  # the latter in pytest 8.3


def _look_once(self: FixtureManager, plugin: object, plugin_name: str) -> None:
    """Do the same as pytest, which spends a fifth of a short run on all names of forty plugins."""
    kind = plugin if isinstance(plugin, ModuleType) else type(plugin)
    if kind in _bare:
        return
    _look(self, plugin, plugin_name)
    spaces = [kind] if kind is plugin else kind.__mro__
    names = [one for space in spaces for one in vars(space).values()]
    if not any(hasattr(one, mark) for one in names for mark in _OF_FIXTURES):
        _bare.add(kind)


@contextmanager
def warm_run() -> Iterator[None]:
    """Start runs of pytest in this process, and their children, warm."""
    with (
        warm_children(),
        patch("importlib.metadata.distributions", _installed),
        patch("importlib.metadata.Distribution.from_name", _named),
        patch("_pytest.fixtures.FixtureManager.pytest_plugin_registered", _look_once),
    ):
        yield


def warm_children() -> AbstractContextManager[object]:
    """Start the package's own processes warm."""
    return patch("subprocess.Popen", Warm)


def import_all() -> None:
    """Import the modules of children, before any test starts a thread.

    A thread that is importing at the moment of a fork holds the module's lock forever in the child.
    And a child would repeat late imports each time: scipy takes 0.3 s of CPU. So would runs in this
    process, since pytester removes the modules that they import first, but not whole packages; half
    an import is worse than none, and numpy does not even allow a second import.
    """
    for name in (
        *(found.name for found in walk_packages(pytest_ultrapar.__path__, "pytest_ultrapar.")),
        *("pyarrow.dataset", "scipy.optimize", "scipy.sparse", "scipy.special"),
        *("anyio._backends._asyncio", "httpcore", "uvicorn.lifespan.off"),
        *("xdist.dsession", "xdist.remote", "xdist.workermanage"),
    ):
        import_module(name)
    # Older releases of OpenTelemetry import this module, which replaces Python's own. The modules
    # restored after a run would otherwise have neither.
    with suppress(ModuleNotFoundError):
        import_module("importlib_metadata")


class Warm(subprocess.Popen[bytes]):
    """Start the package's own modules warm, and everything else as `subprocess` does."""

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        is_usual = os.environ.get("PYTHONPATH") == _PYTHONPATH
        match args:
            case [sys.executable, "-P", "-m", module, *argv] if is_usual and module in _WARM:
                assert not options.get("pass_fds"), "the fork closes them"
                env = options.get("env") or os.environ
                options["preexec_fn"] = partial(_become, module, argv, dict(env))
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork in a process with threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            super().__init__(args, *more, **options)


def _become(module: str, argv: list[str], env: dict[str, str]) -> None:
    """Run the module in place of an interpreter; pipes and directory are set already."""
    code: object = 1
    # Garbage of the parent, when collected here, would close descriptors that are reused by then.
    gc.freeze()
    try:
        # One of them is the pipe on which `Popen` waits for the new interpreter.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(env)
        # Closing a loop of libuv waits for its threads, which do not exist after a fork.
        uvloop.new_event_loop = asyncio.new_event_loop
        sys.argv = [module, *argv]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        # pytest's finder, which has rewritten asserts of the package's plugin, has no code for
        # runpy.
        others = [one for one in sys.meta_path if type(one).__module__ == "importlib_metadata"]
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder, *others]
        main = f"{module}.__main__" if f"{module}.__main__" in sys.modules else module
        # As `python -m` finds it: not imported by any module.
        sys.modules.pop(main, None)
        runpy.run_module(main, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - the fork must not become a second run of the tests
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
