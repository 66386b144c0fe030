"""The result of an async test's body as data, and its exception raised again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace

import msgspec
import pytest

from pytest_ultrapar.session.body_result import BodyResult, run_body

LLM = SimpleNamespace(conversation=SimpleNamespace(failure=None), refused=None)


class Answer:
    """An object that a test holds."""


def said_by(body, keep=lambda _: None):
    """The result of a body, as a journal returns it."""
    result = asyncio.run(run_body(body, {}, LLM, result=BodyResult(), keep=keep))
    return msgspec.json.decode(msgspec.json.encode(result), type=BodyResult)


async def finds_a_wrong_answer():
    answer = Answer()
    held.append(weakref.ref(answer))
    assert not answer


held: list[weakref.ref[Answer]] = []


def test_objects_of_a_test_are_freed_after_its_report():
    kept: list[BaseException] = []
    gc.disable()
    try:
        said_by(finds_a_wrong_answer, kept.append)
        assert held[-1]() is not None
        kept.clear()
        assert held[-1]() is None
    finally:
        gc.enable()


def test_exception_is_rebuilt_with_the_same_lines():
    kept: list[BaseException] = []
    raised = said_by(finds_a_wrong_answer, kept.append).raised
    assert raised is not None
    again = raised.again()
    assert isinstance(again, AssertionError)
    assert (str(again), repr(again)) == (str(kept[0]), repr(kept[0]))
    first, last = (
        pytest.ExceptionInfo.from_exception(one).traceback[-1] for one in (kept[0], again)
    )
    assert (first.path, first.lineno, first.name) == (last.path, last.lineno, last.name)


def test_missing_exception_class_is_replaced_by_one_of_the_same_name():
    class GoneError(LookupError):
        pass

    async def body():
        msg = "no more"
        raise GoneError(msg)

    raised = said_by(body).raised
    assert raised is not None
    again = raised.again()
    assert type(again).__qualname__ == GoneError.__qualname__
    assert str(again) == "no more"


async def raises_in_odd_code():
    def odd():
        raise LookupError

    odd.__code__ = odd.__code__.replace(co_filename="/\udcff.py", co_linetable=b"")
    odd()


def test_frame_without_a_line_in_a_file_with_an_invalid_name_is_kept():
    raised = said_by(raises_in_odd_code).raised
    assert raised is not None
    assert (raised.frames[-1].function, raised.frames[-1].line > 0) == ("odd", True)
    assert isinstance(raised.again(), LookupError)
