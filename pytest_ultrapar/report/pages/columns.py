"""Columns of tables as a page computes with them and shows them."""

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
"""Arrow's, of a table."""
LANE = ("provider", "instance", "key")


class Coded(msgspec.Struct, frozen=True):
    """A column of few texts.

    Attributes:
        texts: Each once.
        at: For each row which of them it has; None where it has none.
    """

    texts: list[str]
    at: list[int | None]


def floats(column: Column) -> Floats:
    """As numbers; NaN where there is none."""
    return np.asarray(column.cast(pa.float64()).to_numpy())


def rounded(numbers: Floats, digits: int) -> list[float]:
    """Numbers with so many digits after the point."""
    return cast("list[float]", np.round(numbers, digits).tolist())


def mask(column: Column, values: Collection[str]) -> Mask:
    """For each row whether it has one of these texts."""
    return places(column, sorted(values)) >= 0


def places(column: Column, values: Sequence[object] | Column) -> Numbers:
    """For each row which of these values it has; -1 for none of them."""
    known = values if isinstance(values, pa.ChunkedArray) else pa.array(values, column.type)
    found = pc.index_in(column, value_set=known)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)


def grouped(places: Numbers, n: int) -> list[Numbers]:
    """For each number below `n` the rows that have it, in their order."""
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(n + 1))
    return [order[ends[at] : ends[at + 1]] for at in range(n)]


def texts(column: Column, most: int) -> list[str]:
    """Each as `shortened` has it; empty where there is none."""
    found = ["" if one is None else str(one) for one in column.to_pylist()]
    if max(map(len, found), default=0) > most:
        return [shortened(one, most) for one in found]
    return all_visible(found)


def all_visible(texts: Iterable[str | None]) -> list[str]:
    """Each as `visible` has it; empty where there is none."""
    found = [one or "" for one in texts]
    # As a rule there is nothing to be done.
    together = "\n".join(found)
    return found if visible(together) == together else [visible(one) for one in found]


def coded(column: Column, most: int) -> Coded:
    """The same where few texts differ."""
    found = column.combine_chunks().dictionary_encode()
    return Coded(texts(found.dictionary, most), found.indices.to_pylist())


def lane_names(table: Any) -> Column:  # noqa: ANN401 - an Arrow table
    """The lane of each row, `provider/instance/key`."""
    parts = [pc.fill_null(table[name], "") for name in LANE]
    return pc.binary_join_element_wise(*parts, "/")
