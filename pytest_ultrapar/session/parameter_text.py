"""What a run keeps of parameters: a text or number for people, and a digest of their content.

Both are the same in every process and every run as long as the data are: nothing is in them of
addresses in memory or of the order of sets. Of a function its own code is data, which another
Python compiles to something else; of what that calls, and of classes, the name.
"""

from __future__ import annotations

import copyreg
import re
import sys
from contextlib import suppress
from enum import Enum
from hashlib import blake2b
from inspect import CO_VARARGS, CO_VARKEYWORDS
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
    """A parameter's value as a column can hold it: plain values as they are, others by name.

    What has no name is its text, or its type where the text would be another in each process.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    try:
        name = getattr(value, "name", None) or getattr(value, "__name__", None)
        text = name if isinstance(name, str) else str(value)
        return type(value).__name__ if _ADDRESS.search(text) or _has_set(value) else text
    except Exception:  # noqa: BLE001 - it runs the suite's code, and a value may hold itself
        return type(value).__name__


def _has_set(value: object) -> bool:
    """Whether the text of a value may begin with any of its parts."""
    if isinstance(value, dict):
        return _has_set([*value, *value.values()])
    if isinstance(value, list | tuple):
        return any(map(_has_set, value))
    return isinstance(value, set | frozenset)


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
