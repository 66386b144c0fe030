"""`@grader`: a fixture whose value is computed by a plain function in a separate process."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.session import internals, prefetch
from pytest_ultrapar.session.compatibility import signature_of
from pytest_ultrapar.session.prefetch import EpisodeError, Graded, is_ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.session.prefetch import Prefetched

_ATTRIBUTE = "__ultrapar_grader__"
_MOST = 1_000_000
functions: dict[tuple[str, str], Callable[..., object]] = {}
"""Graders at the top level of the modules that this process has imported, by module and name."""


class GraderEnded(pytest.skip.Exception):  # type: ignore[misc, name-defined]
    """A grader returned no value, so the case is `unsolved` and its test does not run."""


@dataclass(frozen=True, slots=True)
class GraderFunction:
    """A grader and its settings, which are checked at collection, never at import.

    Attributes:
        arguments: Names of the function's parameters.
        file: File of the function's module.
        line: First line of the function.
        jobs, timeout_s, memory_mb: See `grader`.
    """

    function: Callable[..., object]
    module: str
    name: str
    arguments: tuple[str, ...]
    file: str
    line: int
    jobs: int
    timeout_s: float
    memory_mb: int | None

    def fault(self, item: pytest.Item, found: Sequence[Prefetched]) -> str | None:
        """The reason why this grader cannot grade the cases of a test; None if it can."""
        whose = f"{self.file}:{self.line}: grader {self.name!r}"
        known = functions.get((self.module, self.name))
        if known is not self.function or inspect.iscoroutinefunction(known):
            return (
                f"{whose} cannot be pickled, so it cannot run in another process: "
                "make it a plain `def` at module level, and pass everything that it needs as "
                "arguments"
            )
        for limit, kind in (("jobs", "whole "), ("timeout_s", ""), ("memory_mb", "")):
            value = getattr(self, limit)
            is_kind = type(value) is int or (not kind and type(value) is float)
            if value is not None and not (is_kind and 0 < value < _MOST):
                return f"{whose} has {limit}={value!r}; {limit} must be a {kind}number above 0"
        for name in self.arguments:
            definition = internals.fixture_definition(item, name)
            is_given = internals.is_direct_parameter(definition) or is_ours(definition, "model")
            if not is_given and name not in {one.name for one in found}:
                return (
                    f"{whose} has an argument {name!r}; allowed: the test's prefetched "
                    "fixture, parametrised values and model"
                )
        return None

    def take(self, **_: object) -> object:
        """Return the grader's value for the running case.

        Raises:
            EpisodeError: The grader raised an error, or did not grade the case.
            GraderEnded: The grader exceeded a limit or died, or one of its asserts failed.
        """
        state = prefetch.state
        if state is None or self.name not in state.results:
            raise EpisodeError(
                f"grader {self.name!r} has no value: use it in a test with a prefetched fixture"
            )
        how, kind, value = pickle.loads(state.results[self.name])  # noqa: S301 - from our processes
        if how == "error":
            raise EpisodeError(value)
        if how == "unsolved":
            state.graded = Graded("unsolved", {}, kind, value)
            raise GraderEnded(value)
        return value


def grader(
    function: Callable[..., object] | None = None,
    *,
    jobs: int | None = None,
    timeout_s: float = 60.0,
    memory_mb: int | None = None,
) -> Any:  # noqa: ANN401 - a pytest fixture definition
    """Make a pytest fixture from a plain function that grades in a separate process.

    The function can take the prefetched fixture, parametrised values and `model` as arguments. The
    value that it returns is the fixture's value, and must support pickling. Each case is graded in
    a new process, which is forked from a process that has imported the module. If the process takes
    too long, needs too much memory or dies, the case is `unsolved` with that reason. It is also
    `unsolved` if an assert in the grader fails. After any other exception, the case is an `error`.

    Args:
        function: A function at the top level of a module.
        jobs: The maximum number of cases that are graded at the same time, in all workers together;
            None means one for each core.
        timeout_s: The maximum time for one case, in seconds. After that, all processes that the
            case started are killed.
        memory_mb: The maximum memory for one case, in MiB, on top of what the grader's module uses;
            None means no limit.

    Example:
        ```python
        @grader(jobs=4, timeout_s=3, memory_mb=512)
        def passes(program, tests) -> bool:
            try:
                exec(program + tests, {})
            except Exception:
                return False
            return True

        def test_program(passes):
            assert passes
        ```
    """
    if function is None:
        return partial(grader, jobs=jobs, timeout_s=timeout_s, memory_mb=memory_mb)
    name, module = getattr(function, "__name__", repr(function)), str(function.__module__)
    if getattr(function, "__qualname__", "") == name != "<lambda>":
        functions[module, name] = function
    code = getattr(inspect.unwrap(function), "__code__", grader.__code__)
    parameters = signature_of(function).parameters.values()
    arguments = tuple(one.name for one in parameters if one.default is one.empty)
    place = (code.co_filename, code.co_firstlineno)
    jobs = os.cpu_count() or 1 if jobs is None else jobs
    made = GraderFunction(function, module, name, arguments, *place, jobs, timeout_s, memory_mb)
    take = partial(made.take)
    setattr(take, _ATTRIBUTE, made)
    own = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in arguments]
    return prefetch.as_fixture(take, name, function, own)


def graders_of(item: pytest.Item) -> list[GraderFunction]:
    """The graders that an item depends on."""
    found = map(partial(internals.fixture_definition, item), internals.fixture_names(item))
    made = (getattr(one.func, _ATTRIBUTE, None) for one in found if one is not None)
    return [one for one in made if one is not None]
