"""Find tests and fixtures that cannot be prefetched, and say how to write them instead."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.session import internals
from pytest_ultrapar.session.compatibility import signature_of
from pytest_ultrapar.session.mocks import mock_faults
from pytest_ultrapar.session.prefetch import ANSWERS, ATTRIBUTE, is_ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ultrapar.session.prefetch import Prefetched

_SHARED = frozenset({
    "capfd", "capfdbinary", "caplog", "capsys", "capsysbinary", "capteesys", "mocker",
    "monkeypatch", "recwarn",
})  # fmt: skip
"""Fixtures that change or observe the whole process."""
_INSTEAD = {
    "request": "use `case`, which has parameters and marks",
    "tmp_path": "use tmp_path_factory",
}
_LATER = "use it in a plain test, which grades the value of an episode"


def suite_faults(item: pytest.Item, found: Sequence[Prefetched]) -> list[str]:
    """The errors in a test, one sentence each.

    Args:
        item: One of the test's items.
        found: The prefetched functions of the test.
    """
    if not found:
        return [*filter(None, [_near_miss(item)])]
    faults = [fault for prefetched in found if (fault := prefetched.fault())]
    if len(found) > 1:
        faults.append(f"{_test(item)}: {_several(found)}")
    if not faults:
        used = [name for mark in item.iter_markers("usefixtures") for name in mark.args]
        faults = [
            f"{found[0].place}: argument {name!r} of {found[0].title} is not allowed: {reason}; "
            f"allowed: parametrised values, llm, model, case, {'grade, ' * found[0].is_test}"
            "and session-scoped, unparametrised, synchronous fixtures"
            for name in (*found[0].arguments, *used * found[0].is_test)
            if (reason := _argument_fault(item, name, is_test=found[0].is_test))
        ]
        faults += mock_faults(item, found[0])
    return faults


def no_regrade(test: Prefetched) -> str:
    """The reason why an async test cannot be graded again, and what to do instead."""
    return (
        f"{test.place}: {test.title} both sends and grades, so --ultrapar-regrade "
        "cannot grade it again: use --ultrapar-replay, which sends no requests. For later "
        f"runs, split the function into an episode and a test:\n{_long_form(test)}"
    )


def _long_form(test: Prefetched) -> str:
    asked = ", ".join(name for name in test.arguments if name not in {"grade", "self"})
    test_line = f"    def {test.name}(answer): ..."
    return f"    @prefetch\n    async def answer({asked}) -> str: ...\n\n{test_line}"


def _several(found: Sequence[Prefetched]) -> str:
    names = ", ".join(one.name for one in found)
    if found[0].is_test:
        return (
            f"an async test that takes `llm` sends its own requests and cannot use a prefetched "
            f"fixture ({found[1].name}): leave out `llm` and `async`, or send the requests in "
            "the test"
        )
    return (
        f"a test may use only one prefetched fixture, not {len(found)}: {names} "
        f"({found[1].place}); let one fixture get all answers with asyncio.gather and return "
        "them, for example in a dataclass"
    )


def _test(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]


def _near_miss(item: pytest.Item) -> str | None:
    """The error message for a test that uses `llm` but sends no requests; None for other tests."""
    if not is_ours(internals.fixture_definition(item, "llm"), "llm"):
        return None
    for name in internals.fixture_names(item):
        definition = internals.fixture_definition(item, name)
        if name != "llm" and definition is not None and "llm" in definition.argnames:
            own = ", ".join(definition.argnames)
            return (
                f"{_test(item)}: fixture {name!r} uses `llm`, but requests are sent before any "
                f"fixture runs; write\n    @prefetch\n    async def {name}({own}) -> str:"
            )
    test: Any = inspect.unwrap(item.obj)  # type: ignore[attr-defined]  # of a `Function`
    own = ", ".join(signature_of(test).parameters)
    name = _test(item).rpartition("::")[2]
    if inspect.iscoroutinefunction(test) or inspect.isasyncgenfunction(test):
        return (
            f"{_test(item)}: an async test that takes `llm` must not have a `yield`, be a static "
            "or class method, or have a decorator that hides that it is async"
        )
    return (
        f"{_test(item)}: a test that takes `llm` must be `async def` and await answers; write\n"
        f'    async def {name}({own}):\n        reply = await llm.chat("...")'
    )


def _argument_fault(item: pytest.Item, name: str, *, is_test: bool) -> str | None:
    """The reason why a prefetched function cannot have this argument, and what to do about it."""
    if name in {"llm", "case", ANSWERS}:
        return None
    if name == "self" and (own := getattr(item, "cls", None)) is not None:
        setup = getattr(own, "setup_method", None)
        why = "its class has setup_method, which pytest calls for one test at a time"
        return f"{why}: do its work in the test" if setup else None
    parameters = internals.parameters(item)
    definition = internals.fixture_definition(item, name)
    if definition is None:
        if name in _INSTEAD:
            return f"it belongs to one test at a time: {_INSTEAD[name]}"
        return None if name in parameters else "no fixture or parameter has this name"
    if internals.is_direct_parameter(definition) or is_ours(definition, "model"):
        return None
    if is_test and is_ours(definition, "grade"):
        return None
    if definition.params is not None or name in parameters:
        how = "a parametrised fixture"
        if definition.params is None:
            how = "parametrised through a fixture (indirect)"
        return f"it is {how}: parametrise the test itself, and create the object from the value"
    if getattr(definition.func, ATTRIBUTE, None) is not None:
        return (
            "it is a prefetched fixture itself: call a plain `async def` from both functions, or "
            f"wait for its answers with @prefetch(after={name})"
        )
    if definition.scope != "session":
        return _narrow(definition)
    if inspect.iscoroutinefunction(definition.func) or inspect.isasyncgenfunction(definition.func):
        return "it is an asynchronous fixture: create its value in the function"
    several = _parametrised_below(item, definition)
    return f"it depends on the parametrised fixture {several!r}" if several else None


def _narrow(definition: pytest.FixtureDef[Any]) -> str:
    name, scope = definition.argname, definition.scope
    if name in _SHARED:
        why = "it affects the whole process, and many episodes run in it at the same time"
    else:
        why = f"it is a {scope}-scoped fixture, and many episodes run at the same time"
    if name in _SHARED or definition.func.__module__.startswith("_pytest."):
        return f"{why}: {_INSTEAD.get(name, _LATER)}"
    return f'{why}: give it scope="session", or create its value in the function'


def _parametrised_below(item: pytest.Item, definition: pytest.FixtureDef[Any]) -> str | None:
    """A parametrised fixture that this one needs, which pytest would rebuild during episodes."""
    seen: set[str] = set()
    names = list(definition.argnames)
    while names:
        name = names.pop()
        if name in internals.parameters(item):
            return name
        needed = internals.fixture_definition(item, name)
        if needed is not None and name not in seen:
            seen.add(name)
            names += needed.argnames
    return None
