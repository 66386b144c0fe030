"""At collection, find mocks of HTTP clients: a mock cannot answer the requests of an episode."""

from __future__ import annotations

from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.engine.mocks import LIBRARIES, active_mock
from pytest_ultrapar.session import internals
from pytest_ultrapar.session.prefetch import ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_ultrapar.session.prefetch import Prefetched

_MARKS = ("respx", "vcr")
_SETUPS = ("setup_module", "setup_class", "setup_function", "setup_method")
_CLIENTS = frozenset({"aiohttp", "httpcore", "httpx", "httpx2"})
_PATCHES = frozenset({"patch", "setattr"})
_PAST = (
    "requests from llm bypass this mock: they are sent before their test begins. "
    "docs/how-to/mocks.md shows what to use instead, and where you can mock other requests"
)


def mock_faults(item: pytest.Item, prefetched: Prefetched) -> Iterator[str]:
    """Yield an error for each mock of an HTTP client that a case uses.

    The episode's requests would bypass the mock. A mock in a session fixture that the episode names
    is allowed, because it may be for the episode's tools.
    """
    where = item.nodeid.split("[")[0]
    for what in _uses(item, prefetched):
        yield f"{where}: {what} mocks an HTTP client, but {_PAST}"


def active_faults() -> Iterator[str]:
    """Yield an error if a mock is active during collection: it does not belong to any one test."""
    if (found := active_mock(surely=True)) is not None:
        yield f"a mock is active when tests are collected ({found}), but {_PAST}"


def _uses(item: pytest.Item, prefetched: Prefetched) -> Iterator[str]:
    yield from (f"@pytest.mark.{name}" for name in _MARKS if item.get_closest_marker(name))
    if mocked := _mocked(getattr(item, "function", None), with_code=False):
        yield f"a decorator of the test itself ({mocked})"
    if mocked := _mocked(prefetched.function):
        yield f"code or a decorator of the episode {prefetched.name!r} ({mocked})"
    for name in _SETUPS:
        for owner in (getattr(item, "module", None), getattr(item, "cls", None)):
            if mocked := _mocked(getattr(owner, name, None)):
                yield f"{name} ({mocked})"
    for name in internals.fixture_names(item):
        definition = internals.fixture_definition(item, name)
        if definition is None or hasattr(definition.func, ATTRIBUTE):
            continue
        mocked = _mocked(definition.func)
        is_for_tools = definition.scope == "session" and name in prefetched.arguments
        # Earlier versions let aioresponses answer episodes. A suite that still relies on this must
        # not run.
        if mocked and not (is_for_tools and mocked != "aioresponses"):
            yield f"fixture {name!r} ({mocked})"


def _mocked(function: Any, *, with_code: bool = True) -> str | None:  # noqa: ANN401 - any object of a suite
    """The mock library that a function or its decorators use, or the client that they patch."""
    while function is not None:
        own = getattr(function, "__globals__", {})
        words = set(_words(getattr(function, "__code__", None))) if with_code else set()
        named = [own.get(word, word) for word in sorted(words)]
        # Decorators that are objects, such as vcr's, have the attribute `_self_wrapper`.
        around = [own.get("__name__", ""), getattr(function, "_self_wrapper", "")]
        patched = [patch.getter() for patch in getattr(function, "patchings", ())]
        if words & _PATCHES:
            patched += named
        for known, values in ((LIBRARIES, around + named), (_CLIENTS, patched)):
            if found := next((root for root in map(_root, values) if root in known), None):
                return found
        function = getattr(function, "__wrapped__", None)
    return None


def _words(code: CodeType | None) -> Iterator[str]:
    """The names and strings in a function and in its inner functions."""
    yield from getattr(code, "co_names", ())
    for constant in getattr(code, "co_consts", ()):
        if isinstance(constant, CodeType):
            yield from _words(constant)
        elif isinstance(constant, str):
            yield constant


def _root(value: object) -> str:
    """The top-level package that a value comes from. A string is treated as a module's name."""
    attribute = "__name__" if isinstance(value, ModuleType) else "__module__"
    name = value if isinstance(value, str) else getattr(value, attribute, "")
    return str(name).partition(".")[0]
