"""`@prefetch`: a fixture whose work is done before an item uses it. Also: the state of a case."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import pytest

from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.session.compatibility import annotations_of, signature_of

if TYPE_CHECKING:
    import msgspec

    from pytest_ultrapar.records import EpisodeEnded, Outcome  # noqa: TC004 - no field is read


state: CaseState | None = None
"""The state of the running case; None while a test that is not a case is running. The prefetcher
sets it before each item is set up.
"""


class EpisodeError(UltraparError):
    """An episode failed; the message is the episode's own traceback, as text."""


WRONG_ANSWERS = (AssertionError, pytest.fail.Exception, pytest.xfail.Exception)
"""The exceptions with which a test rejects an answer. Any other exception is an error in the
suite."""


def take_value(prefetched: Prefetched, decode: Callable[[msgspec.Raw], Any] | None = None) -> Any:  # noqa: ANN401 - an annotation may be anything
    """The value of the running case's episode, for the prefetched fixture.

    Args:
        prefetched: The function of the episode.
        decode: Decodes the stored value; None means to decode it as the type in the function's
            return annotation.

    Raises:
        EpisodeError: The case has no episode of this function, the episode failed, or its value
            does not fit the annotation.
    """
    if state is None or state.ended is None or state.prefetched is not prefetched:
        why = (
            "only pytest can call it"
            if prefetched.is_test
            else "make it an argument of the test or its fixtures; avoid request.getfixturevalue()"
        )
        raise EpisodeError(f"{prefetched.title} has no episode: {why}")
    ended = state.ended
    skipped = {
        "interrupted": ended.detail or "interrupted",
        "infra": f"infra: {ended.kind}: {ended.detail}",
        "refused": f"refused by the provider: {ended.kind}: {ended.detail}",
        "skipped": ended.detail or "skipped by its episode",
    }
    if ended.ending in skipped:
        # This makes `-rs` show the test's line instead of this one.
        raise pytest.skip.Exception(skipped[ended.ending], _use_item_location=True)
    return decoded(prefetched, ended, decode)


def decoded(
    prefetched: Prefetched, ended: EpisodeEnded, decode: Callable[[msgspec.Raw], Any] | None = None
) -> Any:  # noqa: ANN401 - as above
    """The value that an episode returned; raises `EpisodeError` in the same way as `take_value`."""
    if ended.ending != "returned" or not ended.value:
        raise EpisodeError(ended.detail or ended.kind or "the episode failed")
    import msgspec  # noqa: PLC0415

    try:
        return (decode or _decoder(prefetched).decode)(ended.value)
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = " (NaN and infinity are stored as null)" if "got `null`" in str(error) else ""
        if prefetched.is_test:
            hint = " (the test was not async when its case ran)"
        raise EpisodeError(
            f"{prefetched.place}: the value that {prefetched.name!r} returned does not fit its "
            f"annotation: {error}{hint}"
        ) from None


@cache
def _decoder(prefetched: Prefetched) -> msgspec.json.Decoder[Any]:
    # Make only one decoder for each function, because making one takes 60 us.
    import msgspec  # noqa: PLC0415

    kind = prefetched.return_type()
    return msgspec.json.Decoder(kind, dec_hook=_of_its_fields)


def _of_its_fields(kind: Any, value: object) -> object:  # noqa: ANN401 - a class of pydantic
    return kind.model_validate(value)


ATTRIBUTE = "__ultrapar_prefetched__"
_NEEDLESS = "__ultrapar_needless__"
PrefetchFunction = Callable[..., Awaitable[Any]]
Across = Literal["model", "repeat"]
ANSWERS = "answers"
"""The name of the argument that gets the answers of other cases."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    """A prefetched function, which is checked at collection, never at import.

    Attributes:
        arguments: Names of the function's parameters without a default, in the order in which they
            are defined.
        place: `file:line` for messages.
        is_test: Whether it is an async test, whose value is a `BodyResult`.
        after: The function whose answers this function's cases wait for, if any.
        across: Whether a case waits for the answers of all models or of all repetitions.
    """

    name: str
    function: PrefetchFunction
    arguments: tuple[str, ...]
    place: str
    is_test: bool = False
    after: Prefetched | None = None
    across: Across = "model"

    @classmethod
    def of(cls, function: PrefetchFunction, *, is_test: bool = False) -> Prefetched:
        """Describe a function. As in pytest, a parameter with a default names no fixture."""
        names = tuple(
            name
            for name, parameter in signature_of(function).parameters.items()
            if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
            and parameter.default is parameter.empty
        )
        code = inspect.unwrap(function).__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        return cls(function.__name__, function, names, place, is_test)

    def of_its_cases(self) -> tuple[str, ...]:
        """The arguments of this function, and of the function that its cases wait for."""
        return self.arguments + (self.after.of_its_cases() if self.after is not None else ())

    @property
    def title(self) -> str:
        """The function's name in messages."""
        return f"the {'async test' if self.is_test else 'prefetched'} function {self.name!r}"

    def fault(self) -> str | None:
        """Why this function cannot be prefetched, and what is allowed; None if it is valid."""
        if not inspect.iscoroutinefunction(self.function):
            return f"{self.place}: @prefetch needs an `async def`, but {self.name!r} is not one"
        for parameter in signature_of(self.function).parameters.values():
            if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
                return (
                    f"{self.place}: argument {parameter!s} of {self.title} is not "
                    "allowed; it must be possible to pass each argument by name"
                )
        if self.is_test and hasattr(self.function, _NEEDLESS):
            return (
                f"{self.place}: @prefetch defines a fixture, but {self.name!r} is named like a "
                "test. Leave out @prefetch (an async test with `llm` is prefetched anyway), or "
                f"rename it to NAME and grade its value in:\n    def {self.name}(NAME): ..."
            )
        if self.is_test:
            return None
        if self.across not in get_args(Across) or (self.after is None) is (
            ANSWERS in self.arguments
        ):
            return (
                f"{self.place}: if a function's cases wait for others, define it like this:\n"
                '    @prefetch(after=answer, across="model")\n'
                f"    async def {self.name}(llm, {ANSWERS}) -> ...:\n"
                'where answer is a prefetched function, and across is "model" or "repeat"'
            )
        return self._annotation_fault()

    def return_type(self) -> Any:  # noqa: ANN401 - an annotation may be anything
        """The resolved return annotation.

        Raises:
            NameError: A name in the annotation is not defined.
        """
        # Resolve only this annotation, because suites may import types of arguments only for type
        # checkers.
        own = {name: a for name, a in annotations_of(self.function).items() if name == "return"}
        holder = type("Holder", (), {"__annotations__": own})
        hints = typing.get_type_hints(holder, globalns=self.function.__globals__)
        return hints.get("return", inspect.Signature.empty)

    def _annotation_fault(self) -> str | None:
        allowed = (
            "allowed: a dataclass, a msgspec struct, a pydantic model, dict, list, str or a "
            "number; the type determines how the episode is stored and read back"
        )
        try:
            annotation = self.return_type()
        except Exception as error:  # noqa: BLE001 - evaluating an annotation runs the suite's code
            return (
                f"{self.place}: the return annotation of {self.name!r} cannot be resolved: {error}"
            )
        if annotation is inspect.Signature.empty:
            return f"{self.place}: {self.name!r} has no return annotation; {allowed}"
        reason = _unstorable(annotation)
        if reason:
            return (
                f"{self.place}: the return annotation of {self.name!r} cannot be stored: {reason}; "
                f"{allowed}"
            )
        return None


def prefetch(
    function: PrefetchFunction | None = None,
    *,
    after: Any = None,  # noqa: ANN401 - what this decorator returned
    across: Across = "model",
) -> Any:  # noqa: ANN401 - a pytest fixture definition
    """Make a pytest fixture from an async function that runs before its tests.

    Hundreds of calls of this function run concurrently. Its arguments may be parametrised values,
    `llm`, `model`, `case`, and session-scoped, unparametrised, synchronous fixtures. In a test
    class, `self` is a new instance. The return annotation determines how the value is stored.
    Errors are reported when tests are collected, never when the module is imported.

    Args:
        function: The function to prefetch.
        after: A prefetched function. A case of this function waits until the cases of `after` with
            the same parameters have ended. It gets their values as `answers`, by model or
            repetition. A test that uses this function has the parameters of `after`, even if it
            does not name them. Cases without an answer are left out of `answers`. If the answer for
            the case's own model or repetition is missing, the case is `infra`.
        across: With `model`, a case waits for the cases of all models in the same repetition. With
            `repeat`, it waits for the cases of the same model in all repetitions.

    Example:
        ```python
        @prefetch
        async def answer(llm, question) -> str:
            reply = await llm.chat([{"role": "user", "content": question}])
            return reply.text
        ```
    """
    if function is None:
        return partial(prefetch, after=after, across=across)
    prefetched = Prefetched.of(function)
    if after is not None:
        awaited = getattr(inspect.unwrap(after), ATTRIBUTE, None)
        prefetched = replace(prefetched, after=awaited, across=across)
    if function.__name__.startswith("test") and "llm" in prefetched.arguments:
        # pytest then collects it as an async test, and `fault` reports the mistake.
        setattr(function, _NEEDLESS, True)
        return function

    def take(*_self: object, **_arguments: object) -> object:
        return take_value(prefetched)

    # pytest reads a fixture's arguments from its signature, and `__wrapped__` would lead to the
    # signature of the async function. But pytest need not set up `llm` and `case`, and `request`
    # would take 0.14 ms per item, because pytest 9.2.0 inspects a signature for each item.
    names = prefetched.of_its_cases()
    wanted = dict.fromkeys(
        name for name in names if name not in {"self", "cls", "llm", "case", ANSWERS}
    )
    if "llm" in names:
        wanted["model"] = None
    # pytest leaves out the first parameter when it reads a method's signature.
    itself = [name for name in prefetched.arguments[:1] if name in {"self", "cls"}]
    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in itself]
    own += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in wanted]
    setattr(take, ATTRIBUTE, prefetched)
    return as_fixture(take, function.__name__, function, own)


def as_fixture(take: Any, name: str, function: object, own: Sequence[inspect.Parameter]) -> Any:  # noqa: ANN401 - a function, or a `partial`; a definition
    """Make the fixture that replaces a function in a suite.

    pytest calls `take` with the parameters `own`, and `take` returns the fixture's value.
    """
    take.__signature__ = inspect.Signature(own)
    take.__name__, take.__doc__, take.__module__ = name, function.__doc__, function.__module__
    return pytest.fixture(name=name if name.isidentifier() else None)(take)


def is_ours(definition: pytest.FixtureDef[Any] | None, name: str) -> bool:
    """Whether this plugin, not the suite, defines the fixture with this name."""
    return definition is not None and getattr(definition.func, "__ultrapar__", None) == name


def prefetched_in(
    function: object, fixtures: Mapping[str, Sequence[pytest.FixtureDef[Any]]]
) -> list[Prefetched]:
    """The prefetched functions of a test: its prefetched fixtures, or the async test itself.

    Args:
        function: The test.
        fixtures: All fixtures that the test depends on, by name. If several have the same name, the
            last one is used.
    """
    last = {name: found[-1] for name, found in fixtures.items() if found}
    functions = [function] if is_ours(last.get("llm"), "llm") else []
    functions += [definition.func for definition in last.values()]
    found = (getattr(one, ATTRIBUTE, None) for one in functions)
    return [one for one in found if one is not None]


def prefetched_of(item: pytest.Item) -> list[Prefetched]:
    """The prefetched functions of an item (`Function._fixtureinfo`)."""
    info = getattr(item, "_fixtureinfo", None)
    return [] if info is None else prefetched_in(getattr(item, "obj", None), info.name2fixturedefs)


def _unstorable(annotation: object) -> str | None:
    # Import this late: only collection with a pool needs it, and importing this package must be
    # fast.
    import msgspec  # noqa: PLC0415

    try:
        described = msgspec.inspect.type_info(annotation)
    except Exception as error:  # noqa: BLE001 - msgspec raises several exceptions for unsupported types
        return str(error)
    return _custom_type(described, msgspec.inspect, set())


def _custom_type(described: Any, inspection: Any, seen: set[int]) -> str | None:  # noqa: ANN401
    """Describe the first part of a type that cannot be stored; None if all parts can be stored."""
    if isinstance(described, inspection.CustomType):
        if hasattr(described.cls, "model_validate"):
            return None
        return f"{getattr(described.cls, '__name__', described.cls)} is a custom class"
    if id(described) in seen or not isinstance(described, inspection.Type):
        return None
    seen.add(id(described))
    for name in described.__struct_fields__:
        value = getattr(described, name)
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            inner = part.type if isinstance(part, inspection.Field) else part
            if isinstance(inner, inspection.Type):
                reason = _custom_type(inner, inspection, seen)
                if reason:
                    return reason
    return None


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """The facts about a case that its episode can use.

    Attributes:
        case_id: 16 hex digits, the same in every run of the suite with the same seed.
        seed: `hash(run_seed, case_id)`: use it to seed all randomness in the episode.
        run_seed: Seed of the run, for random draws that all models and prompts share.
        repeat: Repetition number, from 0.
        params: The item's parameters, including `model`.
        markers: Names of the marks on the test.
    """

    case_id: str
    seed: int
    run_seed: int
    repeat: int
    model: str
    params: Mapping[str, Any]
    markers: tuple[str, ...]


class Graded(NamedTuple):
    """The grade that a test or a grader recorded; without a grade, all fields are defaults."""

    outcome: Outcome | None = None
    scores: dict[str, float] = {}  # noqa: RUF012 - a default
    kind: str | None = None
    reason: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})


_NO_GRADE = Graded()


@dataclass(slots=True)
class CaseState:
    """The state of the case whose item is running, from set-up to teardown.

    Attributes:
        prefetched: The function of its episode.
        calling: Whether the test's body is running; reports made during this time belong to
            subtests.
        subtest_error: The error of a failed subtest. If several failed, an error in the suite takes
            precedence over a rejected answer.
        n_subtests_failed: The number of failed subtests.
        case_id: The id of the case.
        ended: The stored episode; None if a mark prevented the episode from running.
        is_again: Whether the item has been set up before, because a plugin runs the test again with
            the same episode.
        raised: The exception that the test's body raised.
        thrown: The exception that an async test's body raised, if the body ran in this process.
        graded: The grade that the test or a grader recorded.
        outcome: The measured outcome; set once pytest has made the report that determines it.
        test: pytest's own result in one word.
        error: The error in one line, for the results.
        results: The pickled results of graders, by the grader's name.
    """

    prefetched: Prefetched
    case_id: str
    ended: EpisodeEnded | None
    is_again: bool = False
    raised: BaseException | None = None
    thrown: BaseException | None = None
    calling: bool = False
    subtest_error: BaseException | None = None
    n_subtests_failed: int = 0
    graded: Graded = _NO_GRADE
    outcome: Outcome | None = None
    test: str | None = None
    error: str | None = None
    results: Mapping[str, bytes] = field(default_factory=dict)
