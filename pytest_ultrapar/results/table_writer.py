"""What a table is written through, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.results.tables import Row


class TableWriter(Protocol):
    """One table on its way to disk: rows go to a temporary file, which `publish` puts in place.

    Attributes:
        path: Where the table will stand.
        n_rows: Rows added so far.
    """

    path: Path
    n_rows: int

    def add(self, row: Row) -> None:
        """Take one row; its values are in the order of the table's columns."""
        ...

    def flush(self) -> None:
        """Write the rows taken since the last call as one group, to keep memory bounded."""
        ...

    def finish(self) -> None:
        """Close the temporary file and read it back.

        Raises:
            ResultsError: It does not hold what was written.
        """
        ...

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one; whole or not at all."""
        ...

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        ...
