"""What a run keeps of parameters: a text or number for people, and a digest of their content.

Both are the same in every process and every run as long as the data are: nothing is in them of
addresses in memory or of the order of sets. Of a function its own code is data, which another
Python compiles to something else; of what that calls, and of classes, the name.
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
    """Whether a value is recorded as it is; numbers of numpy's and members of enums may be, too."""
    return value is None or isinstance(value, str | int | float)


def scalar(value: object) -> Scalar:
    """A parameter's value as a column can hold it: plain values as they are, others as text.

    What has items or fields is JSON. Else it is its name or its text; its type where the text would
    be another in each process.
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
    except Exception:  # noqa: BLE001 - it runs the suite's code, and a value may hold itself
        return type(value).__name__


as_json = json.JSONEncoder(ensure_ascii=False).encode
"""`json.dumps` with an argument makes an encoder at each call."""


def _parts(value: Any) -> Any:  # noqa: ANN401 - anything
    """What JSON has of a value with items or fields; any other value itself.

    Fields are those that its own text has: what a class keeps out of it may be secret or large.
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
    elif hasattr(type(value), "model_dump"):  # of pydantic
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
"""Levels of a value that are looked at."""


class ContentDigests:
    """Digests of all that values are made of; of what cannot be told, of its type.

    Many tests share one value, which is looked at once: all are kept elsewhere meanwhile.
    """

    def __init__(self) -> None:
        self._done: dict[int, str] = {}
        # With the objects themselves: another one could else get the identity of a part that was
        # made only to be looked at.
        self._parts: dict[int, tuple[object, bytes]] = {}
        self._depth = 0

    def of(self, value: object) -> str:
        """The digest of a value, in hexadecimal digits; with the Python first where it has code."""
        if id(value) not in self._done:
            self._parts.clear()
            digest = self._digest(value).hex()
            has_code = any(type(part) is CodeType for part, _ in self._parts.values())
            python = f"{sys.implementation.cache_tag}:" if has_code else ""
            self._done[id(value)] = python + digest
        return self._done[id(value)]

    def key(self, value: object) -> Scalar:
        """What is equal in equal values: of plain ones themselves, else the digest."""
        return scalar(value) if is_plain(value) else self.of(value)

    def _digest(self, value: object) -> bytes:
        if id(value) not in self._parts:
            parts = [type(value).__qualname__.encode()]
            self._depth += 1
            # What holds itself is its type there.
            self._parts[id(value)] = value, parts[0]
            # It may run the suite's code, and some things cannot be pickled, such as a socket.
            # Nor is anything looked at that lies deep: how deep is possible, the stack would say.
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
    """What tells an object from others of its type."""
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        yield value.__name__
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            yield getattr(value, part, None)
        yield [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    elif isinstance(value, CodeType):
        # Neither files nor lines, and of its flags what else nothing tells.
        yield from (value.co_code, value.co_exceptiontable, value.co_consts, value.co_names)
        yield from (value.co_varnames, value.co_argcount, value.co_posonlyargcount)
        yield from (value.co_kwonlyargcount, value.co_flags & (CO_VARARGS | CO_VARKEYWORDS))
    elif isinstance(value, Enum):
        yield from (value.name, value.value)
    else:
        # What pickle would make it of, all in the answer itself; items come as iterators.
        reduce = copyreg.dispatch_table.get(type(value))
        found: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        for part in [found] if isinstance(found, str) else found[1:]:
            yield [*part] if hasattr(part, "__next__") else part
