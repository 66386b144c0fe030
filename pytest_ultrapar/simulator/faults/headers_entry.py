"""One `[[rate_headers]]` of the file, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.faults.header_text import check_headers
from pytest_ultrapar.simulator.faults.place_entry import read_span, read_where
from pytest_ultrapar.simulator.faults.script import RateHeaders

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.simulator.faults.table import RateHeadersTable


def read_rate_headers(place: Place, table: RateHeadersTable, pool: Pool) -> RateHeaders:
    """Who is told what is left of the limits.

    Raises:
        ConfigError: No such lane, or a header that cannot be sent.
    """
    if table.name is not None:
        place.at("name").refuse("is of no use: headers are not marked in the log")
    values = check_headers(place.at("values"), table.values or {})
    return RateHeaders(read_where(place, table, pool), read_span(place, table), values)
