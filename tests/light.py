"""The command of a pytest process that loads no plugin without a part in what it runs.

Of the 0.6 s of CPU that the start of pytest takes, xdist's workers included, respx (which imports
httpx) and anyio cost half. hypothesis takes 0.3 s at the end of every run, rerunfailures opens a
socket in every run with workers, and benchmark starts git, hg and file. A test that needs one of
them loads it by its module's name.
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
