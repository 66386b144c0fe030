"""The result of an async test's body. It is stored as the episode's value, and the item repeats it.

The body runs before its item, in the engine's thread, and perhaps in an earlier session. So the
body's grade and exception are stored as data. An exception recreated from this data has the same
message and the same lines in its traceback, and pytest shows it like any other.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from pytest_ultrapar.apis.failure import beginning
from pytest_ultrapar.engine.endpoints import without_surrogates
from pytest_ultrapar.engine.episode import end_of_fault
from pytest_ultrapar.records import ASYNC_TEST
from pytest_ultrapar.report.text import harmless
from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.prefetch import WRONG_ANSWERS, Graded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pytest_ultrapar.engine.llm import Llm
    from pytest_ultrapar.session.prefetch import Prefetched

_OUTCOMES = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (pytest.fail.Exception, pytest.xfail.Exception)
}
"""pytest's exceptions for outcomes, by `module:name`. pytest sets the module of some of them to
`builtins`."""
_MOST_FRAMES = 50
"""At most this many frames are stored from each end of a traceback."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One place in a traceback.

    Attributes:
        file: File of the code.
        function: Name of the function.
        begins: Number of the function's first line.
        line: Number of the line that was running.
    """

    file: str
    function: str
    begins: int
    line: int

    @classmethod
    def of(cls, code: CodeType, line: int | None) -> Frame:
        """The place of a line in a function; if `line` is unknown, the function's first line."""
        file, begins = str(without_surrogates(code.co_filename)), code.co_firstlineno
        return cls(file, code.co_name, begins, line or begins)


class Raised(msgspec.Struct, frozen=True):
    """An exception as data.

    Attributes:
        kind: The exception's class: `module:name`.
        said: The exception's message.
        frames: The exception's traceback, beginning with the test.
    """

    kind: str
    said: str
    frames: list[Frame]

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Convert an exception to data."""
        kind = type(error)
        frames = [
            Frame.of(frame.f_code, line)
            for frame, line in walk_tb(error.__traceback__)
            # Do not read `f_locals` of `run_body`: in Python 3.12, a frame then keeps its variables
            # alive, here the error itself.
            if frame.f_code is not run_body.__code__ and not frame.f_locals.get("__tracebackhide__")
        ]
        # Keep the first frames: the very first is the test's, where pytest begins the traceback.
        frames[_MOST_FRAMES:-_MOST_FRAMES] = []
        said = beginning(str(without_surrogates(_text(error))))
        return cls(f"{kind.__module__}:{kind.__qualname__}", said, frames)

    def again(self) -> BaseException:
        """Recreate the exception with its own class if that exists, or else one of the same name.

        The exception's arguments and cause are lost.
        """
        module, _, name = self.kind.partition(":")
        # Do not use pytest's internal classes: pytest would read attributes that are lost, too.
        found: Any = None if module.startswith("_pytest.") else sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        found = _OUTCOMES.get(self.kind, found)
        is_exception = isinstance(found, type) and issubclass(found, BaseException)
        own: dict[str, Any] = {"__module__": module, "__qualname__": name}
        own["__str__"] = lambda _: self.said
        if self.kind in _OUTCOMES:
            own |= {"msg": self.said, "pytrace": True}
        for base in (found, Exception) if is_exception else (Exception,):
            with suppress(Exception):  # groups require exceptions; a class may forbid subclasses
                kind: Any = type(name.rpartition(".")[2], (base,), own)
                error: BaseException = kind.__new__(kind, self.said)
                break
        trace: TracebackType | None = None
        for frame in reversed(self.frames):
            trace = TracebackType(trace, _at(frame), -1, frame.line)
        return error.with_traceback(trace)


def _text(error: BaseException) -> str:
    try:
        return "\n".join((str(error), *getattr(error, "__notes__", ())))
    except Exception:  # noqa: BLE001 - the suite's own code
        return "<exception str() failed>"  # Python's own words


def _here() -> FrameType:
    return sys._getframe()  # noqa: SLF001 - there is no other way to a frame


def _at(frame: Frame) -> FrameType:
    """Make a Python frame whose code appears to be at this place."""
    code = _here.__code__.replace(
        co_filename=frame.file,
        co_name=frame.function,
        co_qualname=frame.function,
        co_firstlineno=frame.begins,
    )
    return cast("FrameType", FunctionType(code, {"sys": sys})())


class BodyResult(msgspec.Struct, omit_defaults=True, tag=ASYNC_TEST):
    """The result of a test's body.

    Attributes:
        graded: The body's call to `grade`, as the fields of a `Graded`.
        raised: The exception that the body raised.
        returned: The type of the body's return value, unless that was None.
    """

    graded: tuple[Any, ...] | None = None
    raised: Raised | None = None
    returned: str | None = None


async def run_body(
    function: Callable[..., Awaitable[object]],
    arguments: Mapping[str, Any],
    llm: Llm,
    *,
    result: BodyResult,
    keep: Callable[[BaseException], None],
) -> BodyResult:
    """Run a test's body; called on the engine's event loop.

    Args:
        function: The body.
        arguments: Its arguments, by name.
        llm: The case's client.
        result: Receives the body's call to `grade`.
        keep: Called with the exception that is stored in the result, if any.

    Raises:
        BaseException: An exception that says nothing about the answer: a failed request,
            `pytest.skip`, or the end of a task or of the session.
    """
    __tracebackhide__ = True
    try:
        returned = await function(**arguments)
        result.returned = None if returned is None else repr(type(returned))
    except (Exception, BaseExceptionGroup, *WRONG_ANSWERS) as error:
        # Do not put the group's first error into a local variable: this would keep the frame alive.
        is_word = isinstance(_of_group(error), (Exception, *WRONG_ANSWERS))
        if not is_word or isinstance(error, pytest.exit.Exception) or end_of_fault(error, llm):
            raise
        if isinstance(error, AttributeError | TypeError) and "'coroutine'" in _text(error):
            error.add_note("an answer must be awaited: write `await llm.chat(...)`")
        result.raised = Raised.of(_of_group(error))
        keep(_of_group(error))
    return result


def _of_group(error: BaseException) -> BaseException:
    """The first error in a group that contains only wrong answers; any other error unchanged."""
    if isinstance(error, BaseExceptionGroup) and error.split(WRONG_ANSWERS)[1] is None:
        return _of_group(error.exceptions[0])
    return error


_decode = msgspec.json.Decoder(BodyResult).decode


def repeat_result(test: Prefetched) -> object:
    """Repeat the result of an async test's body in its item.

    Returns:
        None, or an object that makes pytest warn as it does for the value that the body returned.

    Raises:
        BaseException: The exception that the body raised. It is the same object if the body ran in
            this process.
    """
    __tracebackhide__ = True
    state = prefetch.state
    if state is not None and state.ended is not None and not state.is_again:
        sys.stdout.write(harmless(state.ended.stdout or ""))
    result: BodyResult = prefetch.take_value(test, _decode)
    assert state is not None
    if result.graded is not None:
        state.graded = Graded(*result.graded)
    if result.raised is not None:
        raise state.thrown or result.raised.again()
    said = {"__repr__": lambda _: result.returned}
    return type("_", (type,), said)("_", (), said)() if result.returned else None
