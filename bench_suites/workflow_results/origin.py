"""Footnotes that name the source of a row's cases if they come from another phase or run."""

from __future__ import annotations

from collections.abc import Sequence

from bench_suites.workflow_results.bench_case import BenchCase
from bench_suites.workflow_results.phase import ALL_PHASES, Phase

_NUMBERS = {phase.suite: phase.number for phase in ALL_PHASES}


class Footnotes:
    """The footnotes of one table, numbered in the order of their marks.

    Args:
        phase: The phase of the table.
        run_id: The run of the table.
    """

    def __init__(self, phase: Phase, run_id: str) -> None:
        self._home = phase.suite, run_id
        self._texts: list[str] = []

    @property
    def lines(self) -> list[str]:
        """The footnotes, such as `[1] from phase 5.1`."""
        return [f"[{number}] {text}" for number, text in enumerate(self._texts, 1)]

    def marked(self, text: str, cases: Sequence[BenchCase]) -> str:
        """The text, with a mark if some of the cases come from another phase or run."""
        origins = dict.fromkeys((case.suite, case.run_id) for case in cases)
        foreign = [self._said(*each) for each in origins if each != self._home]
        if not foreign:
            return text
        note = f"{'partly ' if self._home in origins else ''}{' and '.join(foreign)}"
        if note not in self._texts:
            self._texts.append(note)
        return f"{text} [{self._texts.index(note) + 1}]"

    def _said(self, suite: str, run_id: str) -> str:
        phase = f"phase {_NUMBERS[suite]}" if suite != self._home[0] else ""
        run = f"run {run_id}" if run_id != self._home[1] else ""
        return f"from {' of '.join(filter(None, (phase, run)))}"
