"""Record a parameter as a string or number for display, and as a digest of its content.

Equal data gives equal records in every process and every run: memory addresses and the order of
sets do not matter. The code of a function counts as data, so a function's digest differs between
versions of Python. Classes, and the functions that a function calls, are identified only by name.
"""

from __future__ import annotations

import copyreg
import json
import re
import sys
from contextlib import suppress
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from inspect import CO_VARARGS, CO_VARKEYWORDS
from math import isfinite
from numbers import Number
from os import PathLike
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.records import Scalar

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{4,}|\bid='\d+'")


def is_plain(value: object) -> bool:
    """Whether a value is recorded unchanged. That includes some numpy numbers and enum members."""
    return value is None or isinstance(value, str | int | float)


def scalar(value: object) -> Scalar:
    """A parameter's value for a column: plain values unchanged, others as text.

    A value with items or fields becomes JSON. Any other value is shown by its name or its text. If
    the text contains a memory address, which differs in each process, the type is shown instead.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    try:
        parts = _parts(value)
        if parts is not value:
            return as_json(parts)
        name = getattr(value, "name", None) or getattr(value, "__name__", None)
        text = name if isinstance(name, str) else str(value)
        return type(value).__name__ if _ADDRESS.search(text) else text
    except Exception:  # noqa: BLE001 - this runs the suite's code, and a value may contain itself
        return type(value).__name__


as_json = json.JSONEncoder(ensure_ascii=False).encode
"""A shared encoder, because `json.dumps` with an argument makes a new one at each call."""


def _parts(value: Any) -> Any:  # noqa: ANN401 - anything
    """The items or fields of a value for JSON; a value that has neither is returned unchanged.

    Only fields that the value's `repr` shows are used: the others may be secret or large.
    """
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [*map(_part, value)]
    if isinstance(value, set | frozenset):
        return sorted(map(_part, value), key=as_json)
    fields: Any = value
    if is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclass_fields(value) if one.repr}
    elif isinstance(value, tuple):
        fields = value._asdict()  # type: ignore[attr-defined]  # it has `_fields`
    elif hasattr(type(value), "model_dump"):  # a pydantic model
        fields = dict(value.__repr_args__())
    if not isinstance(fields, dict):
        return value
    return {str(scalar(name)): _part(own) for name, own in fields.items()}


def _part(value: object) -> object:
    parts = _parts(value)
    if parts is not value:
        return parts
    own = scalar(value)
    # JSON has neither infinity nor NaN.
    return str(own) if isinstance(own, float) and not isfinite(own) else own


DEEPEST = 100
"""How many levels of a nested value are read."""


class ContentDigests:
    """Digests of the content of values, or of their type if the content cannot be read.

    A value that many tests share is read only once. The caller must keep all values alive, so that
    no `id()` is used twice.
    """

    def __init__(self) -> None:
        self._done: dict[int, str] = {}
        # Keep the objects themselves: otherwise another object could get the `id()` of a temporary
        # part.
        self._parts: dict[int, tuple[object, bytes]] = {}
        self._depth = 0

    def of(self, value: object) -> str:
        """The digest of a value in hex; Python's version precedes it if the value contains code."""
        if id(value) not in self._done:
            self._parts.clear()
            digest = self._digest(value).hex()
            has_code = any(type(part) is CodeType for part, _ in self._parts.values())
            python = f"{sys.implementation.cache_tag}:" if has_code else ""
            self._done[id(value)] = python + digest
        return self._done[id(value)]

    def key(self, value: object) -> Scalar:
        """A key that is equal for equal values: a plain value itself, otherwise the digest."""
        return scalar(value) if is_plain(value) else self.of(value)

    def _digest(self, value: object) -> bytes:
        if id(value) not in self._parts:
            parts = [type(value).__qualname__.encode()]
            self._depth += 1
            # Where a value contains itself, use only its type.
            self._parts[id(value)] = value, parts[0]
            # This may run the suite's code, and some values cannot be pickled, such as a socket.
            # The depth is limited, so that it does not depend on the stack.
            with suppress(Exception):
                parts += self._of(value) if self._depth <= DEEPEST else ()
            self._depth -= 1
            text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
            self._parts[id(value)] = value, blake2b(text, digest_size=8).digest()
        return self._parts[id(value)][1]

    def _of(self, value: Any) -> Iterator[bytes]:  # noqa: ANN401 - anything
        kind = type(value)
        if kind in {bytes, bytearray}:
            yield bytes(value)
        elif kind is str or isinstance(value, Number | PathLike):
            yield str(value).encode("utf-8", "surrogatepass")
        elif kind in {list, tuple}:
            yield from map(self._digest, value)
        elif kind in {set, frozenset}:
            yield from sorted(map(self._digest, value))
        elif kind is dict:
            yield from sorted(self._digest(name) + self._digest(own) for name, own in value.items())
        else:
            yield from map(self._digest, _made_of(value))


def _made_of(value: Any) -> Iterator[object]:  # noqa: ANN401
    """The parts by which an object differs from other objects of its type."""
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        yield value.__name__
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            yield getattr(value, part, None)
        yield [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    elif isinstance(value, CodeType):
        # Leave out files and lines, and all flags that follow from another part.
        yield from (value.co_code, value.co_exceptiontable, value.co_consts, value.co_names)
        yield from (value.co_varnames, value.co_argcount, value.co_posonlyargcount)
        yield from (value.co_kwonlyargcount, value.co_flags & (CO_VARARGS | CO_VARKEYWORDS))
    elif isinstance(value, Enum):
        yield from (value.name, value.value)
    else:
        # These are the parts from which pickle recreates the value. Items come as iterators.
        reduce = copyreg.dispatch_table.get(type(value))
        found: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        for part in [found] if isinstance(found, str) else found[1:]:
            yield [*part] if hasattr(part, "__next__") else part
