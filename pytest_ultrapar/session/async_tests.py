"""Async tests that take `llm`: the body is the episode, and the item repeats its result.

pytest and all plugins see a plain function instead of the test, so plugins for asyncio ignore it.
"""

from __future__ import annotations

import inspect
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.session.prefetch import ATTRIBUTE, Prefetched, prefetched_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.session.prefetch import PrefetchFunction

_OTHERS = frozenset({"anyio", "asyncio", "trio"})
"""Marks for other plugins. These run coroutines, and warn or fail if a test is a plain function."""


class AsyncTests:
    """The plugin that collects async tests.

    It is registered when pytest is configured, so pytest calls it before the installed plugins.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(
        self,
        collector: pytest.Module | pytest.Class,
        name: str,
        obj: Any,  # noqa: ANN401 - any object of a module
    ) -> list[pytest.Item] | None:
        """Collect a plain function in place of an async test. Called for each name in a module."""
        # Check the exact type first: reading an attribute of another kind of object may run the
        # suite's code.
        if type(obj) is not FunctionType or not _takes_llm(obj):
            return None
        if not collector.istestfunction(obj, name):
            return None
        setattr(collector.obj, name, _stand_in(obj))
        made: list[pytest.Item] | None = collector.ihook.pytest_pycollect_makeitem(
            collector=collector, name=name, obj=getattr(collector.obj, name)
        )
        if made and not prefetched_of(made[0]):
            # `llm` is a fixture or parameter of the suite, and another plugin runs the test.
            setattr(collector.obj, name, obj)
            return None
        for item in made or ():
            if type(item) is pytest.Function and any(map(item.get_closest_marker, _OTHERS)):
                item.__class__ = _Unmarked
        return made


def _takes_llm(function: FunctionType) -> bool:
    if not inspect.iscoroutinefunction(function):
        return False
    # Do not use `inspect.signature`: it resolves annotations, which may fail for tests of other
    # plugins.
    code = getattr(inspect.unwrap(function), "__code__", function.__code__)
    return "llm" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _stand_in(function: PrefetchFunction) -> Callable[..., object]:
    prefetched = Prefetched.of(function, is_test=True)

    @wraps(function)
    def stand_in(*_: object, **__: object) -> object:
        __tracebackhide__ = True
        from pytest_ultrapar.session.body_result import repeat_result  # noqa: PLC0415 - with a pool only

        return repeat_result(prefetched)

    setattr(stand_in, ATTRIBUTE, prefetched)
    return stand_in


class _Unmarked(pytest.Function):
    """A test that hides the marks in `_OTHERS` from other plugins."""

    def get_closest_marker(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as pytest's
        """Return the closest mark, as for any item, unless the mark is hidden."""
        return default if name in _OTHERS else super().get_closest_marker(name, default)
