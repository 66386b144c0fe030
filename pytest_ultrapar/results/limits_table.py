"""The table of limits that were estimated: a row per change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.adaptive.history import FILE_NAME, read_changes
from pytest_ultrapar.results.schema import LIMITS_COLUMNS
from pytest_ultrapar.results.table_set import opener

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.results.manifest import Manifest

_ROWS_PER_GROUP = 20_000


def write_limits(run_dir: Path, manifest: Manifest) -> Path | None:
    """Write `limits` of a run, or nothing where no limit was estimated.

    Raises:
        ResultsError: The table did not read back as written.
    """
    records = read_changes(run_dir / FILE_NAME)
    if not records:
        return None
    make = opener(run_dir, manifest.storage_format, simulated=manifest.simulated)
    table = make("limits", LIMITS_COLUMNS)
    try:
        for n, record in enumerate(records, start=1):
            change = record.change
            table.add(
                (
                    manifest.run_id,
                    change.limit,
                    change.t_s,
                    record.at_us,
                    change.workers,
                    change.qps,
                    change.in_flight,
                    change.reason,
                )
            )
            if n % _ROWS_PER_GROUP == 0:
                table.flush()
        table.finish()
        table.publish()
    finally:
        table.discard()
    return table.path
