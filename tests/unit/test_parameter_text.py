"""Texts and digests of parameters: equal in every process, different for different data."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np
import pydantic
import pytest

from pytest_ultrapar.session.parameter_text import ContentDigests, scalar


class Plain:
    def __init__(self, value: object, name: str | None = None) -> None:
        self.value = value
        if name is not None:
            self.name = name


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


@dataclasses.dataclass
class Record:
    value: object


class Question(pydantic.BaseModel):
    text: str
    n: int = 1
    key: pydantic.SecretStr = pydantic.SecretStr("secret")
    own: str = pydantic.Field("secret", repr=False)


@dataclasses.dataclass
class Hidden:
    shown: int
    key: str = dataclasses.field(repr=False)


class Point(NamedTuple):
    x: int
    y: list[float]


LOOP: list[object] = []
LOOP.append(LOOP)


class Colour(enum.Enum):
    RED = "r"


class Word(enum.StrEnum):
    YES = "y"


class Broken:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError

    def __reduce_ex__(self, _: object) -> str:
        raise RuntimeError


def checker(right: str, least: float = 0.5):
    return lambda said: (said == right, least)


def made(text: str, lines: int = 0):
    """A function `f` compiled from this text, as if it were in a file of its own."""
    names: dict[str, object] = {}
    exec(compile("\n" * lines + text, f"file{lines}.py", "exec"), names)
    return names["f"]


def unset():
    """A function that closes over a variable without a value."""
    if sys is None:
        late = 1
    return lambda: late


def digest(value: object) -> str:
    return ContentDigests().of(value)


def looped(value: object) -> Plain:
    one = Plain(value)
    one.itself = one
    return one


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a", "a"),
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3"),
        (Word.YES, "y"),
        (Colour.RED, "RED"),
        (decimal.Decimal("1.50"), "1.50"),
        ({"q": 1}, '{"q": 1}'),
        (Record(1), '{"value": 1}'),
        (Plain(1, name="first"), "first"),
        (len, "len"),
        (Plain(1), "Plain"),
        ([Plain(1)], '["Plain"]'),
        ({"check": lambda said: said}, '{"check": "<lambda>"}'),
        ({"a", "b"}, '["a", "b"]'),
        ([{"a", "b"}], '[["a", "b"]]'),
        ({"q": ({"a"},)}, '{"q": [["a"]]}'),
        (Record([Question(text="é")]), '{"value": [{"text": "é", "n": 1, "key": "**********"}]}'),
        (Hidden(1, "secret"), '{"shown": 1}'),
        (Point(1, [2.5]), '{"x": 1, "y": [2.5]}'),
        ([math.inf, math.nan, True, None], '["inf", "nan", true, null]'),
        ({1: [Colour.RED, pathlib.PurePosixPath("a/b")]}, '{"1": ["RED", "b"]}'),
        (Record, "Record"),
        (LOOP, "list"),
        ({"broken": Broken()}, '{"broken": "Broken"}'),
        (functools.partial(checker, "x"), "partial"),
        (Broken(), "Broken"),
    ],
    ids=map(str, range(31)),
)
def test_value_is_stored_as_name_or_text_or_else_by_type(value, kept):
    found = scalar(value)
    assert found == kept
    assert type(found) is type(kept)


ALIKE = {
    "instance": lambda: Plain([1, {"a": {"x", "y"}}]),
    "slots": lambda: Slotted(b"\x00\xff"),
    "record": lambda: Record(datetime.date(2020, 1, 1)),
    "array": lambda: np.arange(1000),
    "checker": lambda: checker("4"),
    "partial": lambda: functools.partial(checker, "4"),
    "pattern": lambda: re.compile("x+"),
    "function": lambda: made("def f(x):\n  return [y in {'a', 'b', x} for y in x]"),
    "unset": unset,
    "lock": threading.Lock,
    "path": lambda: pathlib.Path("a/b"),
    "order of a dict": lambda: {"a": 1, "b": 2},
    "loop": lambda: looped(1),
    "broken": Broken,
}


@pytest.mark.parametrize("name", ALIKE)
def test_equal_content_has_the_same_digest(name):
    assert digest(ALIKE[name]()) == digest(ALIKE[name]())


DIFFERENT = [
    Plain(1), Plain(2), Plain("1"), Plain(1, "n"), Plain([1]), Plain((1,)), Plain({1}),
    Slotted(1), Slotted(2), Record(1), Record(None), np.arange(1000), np.arange(1000) + 1,
    checker("4"), checker("5"), checker("4", 1), re.compile("x"), re.compile("y"),
    pathlib.Path("a"), Colour.RED, {"a": 1}, {"a": 2}, {"b": 1}, [1, 2], [2, 1], b"a",
    bytearray(b"a"), decimal.Decimal("1.0"), decimal.Decimal("1.00"), looped(1), looped(2),
    collections.OrderedDict(a=1), collections.Counter("aa"), datetime.date(2020, 1, 1), Broken(),
]  # fmt: skip


def test_different_content_has_a_different_digest():
    assert len({digest(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_order_of_dicts_and_sets_does_not_change_the_digest():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"x", "y", "z"}) == digest({"z", "y", "x"})


def test_digest_sees_an_edited_field_and_does_not_change_the_object():
    item = Plain([{"question": "2 + 2"}], name="sum")
    before = copy.deepcopy(vars(item))
    first = digest(item)
    assert vars(item) == before
    item.value[0]["question"] = "2 + 3"
    assert digest(item) != first


def test_digest_of_a_value_is_computed_once_for_all_tests():
    asked = []

    class Counted:
        def __getstate__(self):
            asked.append(1)
            return {"x": 1}

    item, digests = Counted(), ContentDigests()
    assert digests.of(item) == digests.of(item) == digests.of(item)
    assert len(asked) == 1
    assert digests.key("plain") == "plain"


CODES = [
    "f = lambda x: x + 27", "f = lambda x: x * 11", "f = lambda x: x + 28", "f = lambda x: y + 27",
    "f = lambda x, *, y: x", "f = lambda x, y: x", "f = lambda x, /, y: x", "f = lambda *x: x",
    "f = lambda **x: x", "f = lambda x: x", "f = lambda x=1: x", "f = lambda *, x=1: x",
    "f = lambda *, x=2: x", "f = lambda x: lambda: x + 1", "f = lambda x: lambda: x + 2",
    "def f(x): return x", "def g(x): return x\nf = g", "async def f(x): return x",
    "def f(x): 'Says x.'; return x", "def f(x): 'Tells x.'; return x",
    "def f(x): return [y + 1 for y in x]", "def f(x): return [y + 2 for y in x]",
    "def f(x):\n try:\n  a(); b()\n except E: pass",
    "def f(x):\n try:\n  a()\n except E: pass\n else: b()",
]  # fmt: skip


def test_digest_of_a_function_depends_on_its_code_and_not_its_place():
    found = [digest(made(text)) for text in CODES]
    assert len(set(found)) == len(CODES)
    assert found == [digest(made(text, lines=7)) for text in CODES]
    assert digest([made(CODES[0])]) != digest([made(CODES[1])])


def test_digest_of_code_names_the_python_version():
    tag = f"{sys.implementation.cache_tag}:"
    assert digest(made(CODES[0])).startswith(tag)
    assert digest({"check": functools.partial(checker, "4")}).startswith(tag)
    assert not digest([Plain(1), len, Plain, threading]).startswith(tag)


PRINT = """
from tests.unit.test_parameter_text import ALIKE, DIFFERENT, digest, scalar
print([digest(value) for value in DIFFERENT], [digest(make()) for make in ALIKE.values()])
print([scalar(value) for value in DIFFERENT[:15]])
"""


@pytest.mark.slow
def test_digests_are_the_same_in_every_process():
    root = pathlib.Path(__file__).parents[2]
    said = [
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    ]
    assert said[0] == said[1] == said[2]
