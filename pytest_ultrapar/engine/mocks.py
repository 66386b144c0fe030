"""Which mock of an HTTP client is active in this process.

Requests of `llm` go past them all. They are sent while other tests run, and a mock may be one of
theirs: no answer must come from it, and no request fail by it.
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
"""Where mocks of clients put themselves that await, as those of `llm` do."""


def active_mock(*, surely: bool = False) -> str | None:
    """What stands in the place of a method of a client, in words; None: each has its own.

    What an installed package puts there that is no known mock, as telemetry does, passes.

    Args:
        surely: Whether a function of a suite passes, too: it may do no more than count.
    """
    for module, owner, method in _PLACES:
        if (client := sys.modules.get(module)) is None:
            continue
        found = getattr(getattr(client, owner, None), method, None)
        kind = type(getattr(found, "mock", found)).__module__  # `mock`: of an autospec
        source = kind if kind == "unittest.mock" else str(getattr(found, "__module__", module))
        root = source.partition(".")[0]
        if root == module:
            continue
        is_mock = source == "unittest.mock" or root in LIBRARIES
        code = None if is_mock or surely else getattr(found, "__code__", None)
        if is_mock or (code is not None and "site-packages" not in code.co_filename):
            return f"{module}.{owner}.{method} is one of {source}"
    return None
