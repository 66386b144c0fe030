"""Read a very large run in slices of cases.

Making the tables of such a run then takes no more memory than for a small run. A slice consists of
successive cases in the plan. One pass over the journal collects the figures of the whole run and
the position of each record, which takes 24 bytes of memory per record.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pytest_ultrapar.analysis.repetitions import question_of
from pytest_ultrapar.analysis.table_layouts import Uses
from pytest_ultrapar.records import EngineSpent, Grade
from pytest_ultrapar.store.cases_file import iter_claimed, read_tables
from pytest_ultrapar.store.journal import Damage, Position, scan_segment, segments
from pytest_ultrapar.store.journal_history import decode_head
from pytest_ultrapar.store.tables import grade_values, parameter_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ultrapar.records import Case


class Slices:
    """The cases of a run, one slice after the other, and the positions of their journal records.

    Args:
        run_dir: A run directory with planned cases.
        size: The number of cases in a slice.

    Attributes:
        n_cases: The number of planned cases.
        n_planned: The number of planned cases by suite and model.
        params: The columns of the tests' parameters, from `parameter_columns`.
        layouts: The same as in `JournalScan`.
        said: All names that `grade_values` returns for any grade.
        damage: The damaged parts of the journal.
        engines: How busy each engine was.

    Raises:
        ResultsError: The cases or the journal cannot be read.
    """

    def __init__(self, run_dir: Path, size: int) -> None:
        self._journal = run_dir / "journal"
        self._size = size
        self._left = iter_claimed(run_dir)
        self._number = -1
        self.n_planned: Counter[tuple[str, str]] = Counter()
        hashes, questions = array("q"), array("q")

        def noted() -> Iterator[Case]:
            for case in iter_claimed(run_dir):
                hashes.append(hash(case.case_id))
                questions.append(hash(question_of(case)))
                self.n_planned[case.suite, case.model] += 1
                uses.add(case)
                yield case

        uses = Uses(read_tables(run_dir))
        self.params = parameter_columns(noted())
        self.layouts = uses.layouts()
        self.n_cases = len(hashes)
        self._order = np.argsort(np.array(hashes), kind="stable")
        self._hashes = np.array(hashes)[self._order]
        _, asked, n = np.unique(np.array(questions), return_inverse=True, return_counts=True)
        # Each case's question as a number; -1 for questions without repetitions.
        self._questions = np.where(n[asked] > 1, asked, -1).astype(np.int32)
        self._seen: Counter[tuple[int, int]] = Counter()
        self._n_slices = -(-self.n_cases // size)
        self._segments: list[str] = []
        self._segment, self._offset, self._length = array("I"), array("Q"), array("I")
        self.said: set[str] = set()
        self.damage: list[Damage] = []
        self.engines: list[EngineSpent] = []
        self._look()

    def next_cases(self) -> list[Case] | None:
        """Return the cases of the next slice; None after the last slice.

        The last slice is empty. The records of cases that were not planned belong to it.
        """
        if self._number * self._size >= self.n_cases:
            return None
        self._number += 1
        cases = list(islice(self._left, self._size))
        if not cases:
            self._number = self.n_cases  # there are no more slices
        return cases

    def cells(self, cases: list[Case]) -> dict[str, str]:
        """Return the cell of each case in one slice by case id, in the same way as `cells_of`.

        If a case is alone in its cell, the text is empty.
        """
        found, begin = {}, self._number * self._size
        names = self._questions[begin : begin + len(cases)].tolist()
        for case, name in zip(cases, names, strict=True):
            if name >= 0:
                at = self._seen[name, case.repeat]
                self._seen[name, case.repeat] += 1
                found[case.case_id] = sys.intern(f"{name} {at}")
            else:
                found[case.case_id] = ""
        return found

    def positions(self, cases: list[Case]) -> Iterator[Position]:
        """Yield the positions of the current slice's records in the journal."""
        number = self._number if cases else self._n_slices
        for at in self._in_order[self._ends[number] : self._ends[number + 1]].tolist():
            yield Position(self._segments[self._segment[at]], self._offset[at], self._length[at])

    def _look(self) -> None:
        hashes = array("q")
        for number, path in enumerate(segments(self._journal)):
            self._segments.append(path.name)
            for position, head in scan_segment(path, decode_head):
                if isinstance(head, Damage):
                    self.damage.append(head)
                    continue
                if isinstance(head, EngineSpent):
                    if head not in self.engines:
                        self.engines.append(head)
                    continue
                if isinstance(head, Grade):
                    self.said.update(grade_values(head))
                self._segment.append(number)
                self._offset.append(position.offset)
                self._length.append(position.length)
                hashes.append(hash(head.case_id))
        found = np.array(hashes)
        at = np.minimum(self._hashes.searchsorted(found), max(0, self.n_cases - 1))
        is_planned = self._hashes[at] == found if self.n_cases else np.zeros(len(found), bool)
        # Records of unplanned cases go to the last slice, which has no planned cases.
        slice_of = np.full(len(found), self._n_slices)
        slice_of[is_planned] = self._order[at[is_planned]] // self._size
        self._in_order = np.argsort(slice_of, kind="stable")
        self._ends = np.searchsorted(slice_of[self._in_order], np.arange(self._n_slices + 2))
