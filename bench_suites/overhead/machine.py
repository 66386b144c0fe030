"""Where and when figures were taken; nothing that names the machine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version

_PACKAGES = ("pytest-ultrapar", "pytest", "pytest-xdist", "httpx", "aiohttp", "uvloop")


def describe() -> dict[str, str | int | float]:
    """Date, cores, load, Python and the versions that the figures depend on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        "load_average": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }
