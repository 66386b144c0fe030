"""The command of a pytest process without plugins that its tests do not need.

The start of pytest takes 0.6 s of CPU, including xdist's workers; respx (which imports httpx) and
anyio take half of that. hypothesis takes 0.3 s at the end of every run, rerunfailures opens a
socket in every run with workers, and benchmark starts git, hg and file. A test that needs one of
them loads it by the name of its module.
"""

from __future__ import annotations

import sys

_UNUSED = (
    "anyio", "asyncio", "benchmark", "cacheprovider", "hypothesispytest", "repeat", "rerunfailures",
    "respx", "allure_pytest", "ctrf", "html", "html_fixtures", "metadata", "pytest_jsonreport",
    "sugar", "doctest", "pastebin", "valkey", "fakefs", "time_machine",
)  # fmt: skip
LIGHT = tuple(f"-pno:{name}" for name in _UNUSED)
PYTEST = (sys.executable, "-m", "pytest", *LIGHT)
