"""Find out whether a mock of an HTTP client is active in this process.

Requests of `llm` bypass all mocks. They are sent while other tests run, and an active mock may
belong to one of those tests. Such a mock must neither answer a request of `llm` nor make it fail.
"""

from __future__ import annotations

import sys

LIBRARIES = frozenset({"aioresponses", "pytest_httpx", "respx", "vcr"})
_PLACES = (
    ("httpx", "AsyncClient", "send"),
    ("httpx", "AsyncClient", "request"),
    ("httpx", "AsyncClient", "post"),
    ("httpx", "AsyncClient", "_transport_for_url"),
    ("httpx", "AsyncHTTPTransport", "handle_async_request"),
    ("httpcore", "AsyncConnectionPool", "handle_async_request"),
    ("aiohttp", "ClientSession", "_request"),
)
"""The methods that mocks of async clients replace."""


def active_mock(*, surely: bool = False) -> str | None:
    """Say in words which method of a client a mock has replaced; None if no mock is active.

    Methods that other installed packages replace, for example for telemetry, are ignored.

    Args:
        surely: Whether to also ignore methods that the suite's own functions have replaced.
            Such functions are not necessarily mocks: some only count calls.
    """
    for module, owner, method in _PLACES:
        if (client := sys.modules.get(module)) is None:
            continue
        found = getattr(getattr(client, owner, None), method, None)
        kind = type(getattr(found, "mock", found)).__module__  # an autospec has a `mock`
        source = kind if kind == "unittest.mock" else str(getattr(found, "__module__", module))
        root = source.partition(".")[0]
        if root == module:
            continue
        is_mock = source == "unittest.mock" or root in LIBRARIES
        code = None if is_mock or surely else getattr(found, "__code__", None)
        if is_mock or (code is not None and "site-packages" not in code.co_filename):
            return f"{module}.{owner}.{method} is mocked by {source}"
    return None
