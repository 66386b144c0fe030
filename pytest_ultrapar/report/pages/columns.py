"""Convert columns of tables for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_ultrapar.report.text import shortened, visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.floating[Any]]
    Mask = NDArray[np.bool_]

Column = Any
"""A column of an Arrow table."""
LANE = ("provider", "instance", "key")


class Coded(msgspec.Struct, frozen=True):
    """A column in which few distinct strings occur.

    Attributes:
        texts: Each distinct string, once.
        at: For each row, the index of its string in `texts`; None for null.
    """

    texts: list[str]
    at: list[int | None]


def floats(column: Column) -> Floats:
    """Convert a column to numbers. Null becomes NaN."""
    return np.asarray(column.cast(pa.float64()).to_numpy())


def rounded(numbers: Floats, digits: int) -> list[float]:
    """Round numbers to `digits` decimals."""
    return cast("list[float]", np.round(numbers, digits).tolist())


def mask(column: Column, values: Collection[str]) -> Mask:
    """Return, for each row, whether its string is one of the given values."""
    return places(column, sorted(values)) >= 0


def places(column: Column, values: Sequence[object] | Column) -> Numbers:
    """Return, for each row, the index of its value in `values`; -1 if the value is not there."""
    known = values if isinstance(values, pa.ChunkedArray) else pa.array(values, column.type)
    found = pc.index_in(column, value_set=known)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)


def grouped(places: Numbers, n: int) -> list[Numbers]:
    """Return, for each number below `n`, the rows that have this number, in order."""
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(n + 1))
    return [order[ends[at] : ends[at + 1]] for at in range(n)]


def texts(column: Column, most: int) -> list[str]:
    """Apply `shortened` to each string. Null becomes an empty string."""
    found = ["" if one is None else str(one) for one in column.to_pylist()]
    if max(map(len, found), default=0) > most:
        return [shortened(one, most) for one in found]
    return all_visible(found)


def all_visible(texts: Iterable[str | None]) -> list[str]:
    """Apply `visible` to each string. None becomes an empty string."""
    found = [one or "" for one in texts]
    # Check all texts at once, because most of them need no change.
    together = "\n".join(found)
    return found if visible(together) == together else [visible(one) for one in found]


def coded(column: Column, most: int) -> Coded:
    """Apply `texts` to a column with few distinct strings."""
    found = column.combine_chunks().dictionary_encode()
    return Coded(texts(found.dictionary, most), found.indices.to_pylist())


def lane_names(table: Any) -> Column:  # noqa: ANN401 - an Arrow table
    """Return the name of each row's lane, as `provider/instance/key`."""
    parts = [pc.fill_null(table[name], "") for name in LANE]
    return pc.binary_join_element_wise(*parts, "/")
