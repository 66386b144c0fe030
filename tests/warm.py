"""Children of the tests that start in 10 ms, since this process has imported all that they need.

A run in this process (`run_here`) starts `python -m pytest_ultrapar.analysis.compact`, which spends
0.6 s of CPU on imports, in some three hundred tests. `Warm` runs the module's `main` in the fork
that `subprocess` makes anyway, where a new interpreter would take its place. Tests of how a child
starts, and all runs that are processes of their own, start theirs in the ordinary way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import traceback
import warnings
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import uvloop


def _main(module: str) -> ModuleType:
    """What `python -m` runs of a module or package."""
    found = import_module(module)
    return import_module(f"{module}.__main__") if hasattr(found, "__path__") else found


_WARM = {"pytest_ultrapar.analysis.compact", "pytest_ultrapar.simulator"}
# Before any test starts a thread: one that is importing at the moment of a fork holds the module's
# lock for ever in the child. What these import late, `plugin/conftest.py` loads in the same way.
for _module in _WARM:
    _main(_module)

# A test that sets another one wants its children to import something else.
_PYTHONPATH = os.environ.get("PYTHONPATH")


class Warm(subprocess.Popen[bytes]):
    """Starts our own modules warm, and everything else as `subprocess` does."""

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        is_usual = os.environ.get("PYTHONPATH") == _PYTHONPATH
        match args:
            case [sys.executable, "-P", "-m", module, *argv] if is_usual and module in _WARM:
                assert not options.get("pass_fds"), "the fork closes them"
                env = options.get("env") or os.environ
                options["preexec_fn"] = partial(_become, module, argv, dict(env))
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            super().__init__(args, *more, **options)


def _become(module: str, argv: list[str], env: dict[str, str]) -> None:
    """Run the module in the place of an interpreter; pipes and directory are in place already."""
    code = 1
    # The parent's garbage would close descriptors that are ours by the time it is collected.
    gc.freeze()
    try:
        # Among them is the pipe on which `Popen` waits for the new interpreter.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(env)
        # Closing a loop of libuv's waits for its threads, which are not there after a fork.
        uvloop.new_event_loop = asyncio.new_event_loop
        sys.argv = [module, *argv]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        code = _main(module).main()
    except BaseException:  # noqa: BLE001 - the fork must not go on as a second run of the tests
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
