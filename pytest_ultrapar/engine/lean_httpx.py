"""httpx without its command line: `from pytest_ultrapar.engine.lean_httpx import httpx`.

Where click and rich are installed httpx loads both for `httpx.main`, which is half of the time that
its import takes, in each worker. It does without where they are not, and here it takes them for
missing.
"""

from __future__ import annotations

import sys

_COMMAND = "httpx._main"
_is_first = "httpx" not in sys.modules
if _is_first:
    # The import system's own word for what is not there.
    sys.modules[_COMMAND] = None  # type: ignore[assignment]
try:
    import httpx
finally:
    # Whoever wants the command after us gets it: it is imported where it is called.
    if _is_first:
        del sys.modules[_COMMAND]

__all__ = ["httpx"]
