"""`@prefetch`: a fixture whose work is done before its item runs, and the case that it is for."""

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
"""What is known of it; None while a plain test runs. Set by the prefetcher before set-up."""


class EpisodeError(UltraparError):
    """An episode failed; its own traceback, as text, is the message."""


WRONG_ANSWERS = (AssertionError, pytest.fail.Exception, pytest.xfail.Exception)
"""What a test raises when an answer is not as it should be; everything else is its own error."""


def take_value(prefetched: Prefetched, decode: Callable[[msgspec.Raw], Any] | None = None) -> Any:  # noqa: ANN401 - an annotation may be anything
    """The value of the running case's episode, as the prefetched fixture hands it to the test.

    Args:
        prefetched: Whose episode it has to be.
        decode: Reads the value; None: as the function's annotation says.

    Raises:
        EpisodeError: The episode failed, or its value does not fit its annotation.
    """
    if state is None or state.ended is None or state.prefetched is not prefetched:
        why = (
            "only pytest can call it"
            if prefetched.is_test
            else "it must be named by the test or its fixtures, not asked for with "
            "request.getfixturevalue()"
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
        # `-rs` shows the test, and not this line.
        raise pytest.skip.Exception(skipped[ended.ending], _use_item_location=True)
    return decoded(prefetched, ended, decode)


def decoded(
    prefetched: Prefetched, ended: EpisodeEnded, decode: Callable[[msgspec.Raw], Any] | None = None
) -> Any:  # noqa: ANN401 - as above
    """The value that an episode returned; errors as of `take_value`."""
    if ended.ending != "returned" or not ended.value:
        raise EpisodeError(ended.detail or ended.kind or "the episode failed")
    import msgspec  # noqa: PLC0415

    try:
        return (decode or _decoder(prefetched).decode)(ended.value)
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = " (NaN and infinity are stored as null)" if "got `null`" in str(error) else ""
        if prefetched.is_test:
            hint = " (when its case was asked it was no async test)"
        raise EpisodeError(
            f"{prefetched.place}: the value that {prefetched.name!r} returned does not fit its "
            f"annotation: {error}{hint}"
        ) from None


@cache
def _decoder(prefetched: Prefetched) -> msgspec.json.Decoder[Any]:
    # Made once per function: for every item anew it would cost 60 us.
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
"""The argument that has the answers of other cases."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What is known of a function that runs ahead; checked at collection, never at import.

    Attributes:
        arguments: Names of its parameters, in order.
        place: `file:line` for messages.
        is_test: Whether it is an async test, of whose value `body_result` knows.
        after: The function for whose answers its cases wait; None: for none.
        across: Whether these are answers with all models, or in all repetitions.
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
        """What is known of a function. As with any fixture, what has a default is no argument."""
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
        """What its cases have: its arguments, and those of the function that it waits for."""
        return self.arguments + (self.after.of_its_cases() if self.after is not None else ())

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{'async test' if self.is_test else 'prefetched'} {self.name!r}"

    def fault(self) -> str | None:
        """Why this function cannot be prefetched as it is, or None. Says what is allowed."""
        if not inspect.iscoroutinefunction(self.function):
            return f"{self.place}: @prefetch needs an `async def`, but {self.name!r} is not one"
        for parameter in signature_of(self.function).parameters.values():
            if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
                return (
                    f"{self.place}: argument {parameter!s} of {self.title} is not "
                    "allowed; its arguments must have names"
                )
        if self.is_test and hasattr(self.function, _NEEDLESS):
            return (
                f"{self.place}: @prefetch makes what a test asks for, and {self.name!r} is called "
                "like a test: leave out @prefetch, as an async test that takes `llm` runs ahead "
                f"itself; or call it otherwise, and grade it in\n    def {self.name}(NAME): ..."
            )
        if self.is_test:
            return None
        if self.across not in get_args(Across) or (self.after is None) is (
            ANSWERS in self.arguments
        ):
            return (
                f"{self.place}: a case that waits for others is written\n"
                '    @prefetch(after=answer, across="model")\n'
                f"    async def {self.name}(llm, {ANSWERS}) -> ...:\n"
                'where answer is a prefetched function, and across "model" or "repeat"'
            )
        return self._annotation_fault()

    def return_type(self) -> Any:  # noqa: ANN401 - an annotation may be anything
        """The return annotation, resolved.

        Raises:
            NameError: The annotation names something that does not exist.
        """
        # Only this one: suites import the types of their arguments for type checkers alone.
        own = {name: a for name, a in annotations_of(self.function).items() if name == "return"}
        holder = type("Holder", (), {"__annotations__": own})
        hints = typing.get_type_hints(holder, globalns=self.function.__globals__)
        return hints.get("return", inspect.Signature.empty)

    def _annotation_fault(self) -> str | None:
        allowed = (
            "allowed are a dataclass, a msgspec struct, a model of pydantic, dict, list, str or a "
            "number, which say how the episode is stored and read back"
        )
        try:
            annotation = self.return_type()
        except Exception as error:  # noqa: BLE001 - evaluating an annotation runs the suite's code
            return (
                f"{self.place}: the return annotation of prefetched {self.name!r} cannot be "
                f"resolved: {error}"
            )
        if annotation is inspect.Signature.empty:
            return f"{self.place}: prefetched {self.name!r} has no return annotation; {allowed}"
        reason = _unstorable(annotation)
        if reason:
            return (
                f"{self.place}: the return annotation of prefetched {self.name!r} cannot be "
                f"stored: {reason}; {allowed}"
            )
        return None


def prefetch(
    function: PrefetchFunction | None = None,
    *,
    after: Any = None,  # noqa: ANN401 - what it returned itself
    across: Across = "model",
) -> Any:  # noqa: ANN401 - a pytest fixture definition
    """Make a pytest fixture out of an async function that is prefetched, hundreds at once.

    Its arguments may be parametrised values, `llm`, `model`, `case`, and session-scoped,
    unparametrised, synchronous fixtures; in a test class, `self`: an instance of its own. Its
    return annotation says how the episode is stored. Faults are reported when tests are collected,
    never when the module is imported.

    Args:
        function: What runs ahead.
        after: A prefetched function. A case of this one waits until those of `after` with the same
            parameters have ended, and gets as `answers` what they returned, by model or repetition.
            Its test takes these parameters, whether it names them or not. Those without an answer
            are left out; where its own is, the case is `infra`.
        across: `model`: with all models, in the case's repetition; `repeat`: in all repetitions,
            with its model.

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
        # Collected as the async test that it looks like, for `fault` to say.
        setattr(function, _NEEDLESS, True)
        return function

    def take(*_self: object, **_arguments: object) -> object:
        return take_value(prefetched)

    # pytest reads a fixture's requests from its signature; `__wrapped__` would lead it to the async
    # function. It has nothing to set up for `llm` and `case`, and `request` alone would cost 0.14
    # ms an item (pytest 9.2.0 inspects a signature for each).
    names = prefetched.of_its_cases()
    wanted = dict.fromkeys(
        name for name in names if name not in {"self", "cls", "llm", "case", ANSWERS}
    )
    if "llm" in names:
        wanted["model"] = None
    # In a class it is a method, whose signature pytest reads without its first parameter.
    itself = [name for name in prefetched.arguments[:1] if name in {"self", "cls"}]
    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in itself]
    own += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in wanted]
    setattr(take, ATTRIBUTE, prefetched)
    return as_fixture(take, function.__name__, function, own)


def as_fixture(take: Any, name: str, function: object, own: Sequence[inspect.Parameter]) -> Any:  # noqa: ANN401 - a function, or a `partial`; a definition
    """The fixture that a suite's function becomes: `take` makes its value of these parameters."""
    take.__signature__ = inspect.Signature(own)
    take.__name__, take.__doc__, take.__module__ = name, function.__doc__, function.__module__
    return pytest.fixture(name=name if name.isidentifier() else None)(take)


def is_ours(definition: pytest.FixtureDef[Any] | None, name: str) -> bool:
    """Whether a fixture is the one of this plugin that has this name, and none of a suite's own."""
    return definition is not None and getattr(definition.func, "__ultrapar__", None) == name


def prefetched_in(
    function: object, fixtures: Mapping[str, Sequence[pytest.FixtureDef[Any]]]
) -> list[Prefetched]:
    """What runs ahead for a test: prefetched fixtures, or itself if it is async and takes `llm`.

    Args:
        function: The test.
        fixtures: By name, what it depends on, directly or through others; the last one counts.
    """
    last = {name: found[-1] for name, found in fixtures.items() if found}
    functions = [function] if is_ours(last.get("llm"), "llm") else []
    functions += [definition.func for definition in last.values()]
    found = (getattr(one, ATTRIBUTE, None) for one in functions)
    return [one for one in found if one is not None]


def prefetched_of(item: pytest.Item) -> list[Prefetched]:
    """What runs ahead for an item (`Function._fixtureinfo`)."""
    info = getattr(item, "_fixtureinfo", None)
    return [] if info is None else prefetched_in(getattr(item, "obj", None), info.name2fixturedefs)


def _unstorable(annotation: object) -> str | None:
    # Imported late: an import of this package alone must stay light, and collection needs it only
    # with a pool.
    import msgspec  # noqa: PLC0415

    try:
        described = msgspec.inspect.type_info(annotation)
    except Exception as error:  # noqa: BLE001 - msgspec raises several kinds for what it cannot take
        return str(error)
    return _custom_type(described, msgspec.inspect, set())


def _custom_type(described: Any, inspection: Any, seen: set[int]) -> str | None:  # noqa: ANN401
    """The first part of a type that only its own program could store, in words."""
    if isinstance(described, inspection.CustomType):
        if hasattr(described.cls, "model_validate"):
            return None
        return f"{getattr(described.cls, '__name__', described.cls)} is a class of its own"
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
    """What an episode may know of its case.

    Attributes:
        case_id: 16 hex digits, the same in every run of the suite with the same seed.
        seed: `hash(run_seed, case_id)`: seed whatever is random in the episode with it.
        run_seed: Seed of the run, for draws that all models and prompts share.
        repeat: Repetition number, from 0.
        params: The item's parameters, `model` included.
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
    """What `grade` was called with, if it was."""

    outcome: Outcome | None = None
    scores: dict[str, float] = {}  # noqa: RUF012 - a default
    kind: str | None = None
    reason: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})


_NO_GRADE = Graded()


@dataclass(slots=True)
class CaseState:
    """What is known of the case whose item is running; made at each set-up, gone after teardown.

    Attributes:
        prefetched: The function whose episode it is.
        calling: Whether the test's body runs; reports made meanwhile are of its subtests.
        subtest_error: What made a subtest fail; an error of the suite outweighs a wrong answer.
        n_subtests_failed: How many did.
        case_id: The case.
        ended: The stored episode; None when a mark kept it from running.
        is_again: Whether the item was set up before: plugins run tests again, on the same episode.
        raised: What the test's body raised.
        thrown: What an async test raised, if its body ran in this process.
        graded: What `grade` was called with.
        outcome: The measurement, once the deciding report is made.
        test: pytest's own result in one word.
        error: One line for the results.
        results: What graders made of its value, by their names, pickled.
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
