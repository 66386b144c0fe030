"""The end of a run on one screen: what matters first, and where the rest is; pure."""

from __future__ import annotations

import re
import textwrap
from itertools import chain, product
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.run_summary import all_of
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.file import REPORT
from pytest_ultrapar.report.summary import (
    LAST_TRY,
    SIMULATED,
    cost_lines,
    lane_lines,
    pace,
    performance_lines,
    replay_line,
    speedup_line,
    trouble_lines,
    verdict,
)
from pytest_ultrapar.report.text import GAP, counted, n_cells, shorten, text_table, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.analysis.run_summary import Cell, ResultsOfTest, RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.report.whole_run import HostPart

    Columns = Mapping[str, Mapping[str, Sequence[Cell]]]
    """Cells of each column, by the names of the rows."""

MOST_LINES = 30
MOST_WIDTH = 100
_USUAL_WIDTH = 80
_MOST_ROWS = 20
_MOST_SCORES = 3
_LEAST_REST = 2
"""Lines of what else there is to say, where rows of the table take the place of others."""
_MOST_OF_A_KIND = 3
"""Lines on lanes, and as many on cases without a grade."""
_MOST_FOLDS = 2
_WARNINGS = ("LIMIT EXCEEDED", "CLIENT-BOUND")
_WIDEST_HEAD = 12
_NARROWEST_HEAD = 7
_WIDEST_NAME = 30
_N_AND_SOLVED = 16
"""Characters of these two columns."""
_SHARE = re.compile(r"\b(\d+)%")
_MORE = f" (more in {REPORT})"
_HALF_A_CLAUSE = re.compile(rf"(.{{30}})[,;] [^,;]*{re.escape(_MORE)}$")


def plain(text: str, share: float) -> str:
    """No colour, whatever the share."""
    return text


_PAGE = "report.html"
_SHOWN = f"open {_PAGE}, or read {REPORT}"
_NOT_SHOWN = f"{REPORT} tells more, ultrapar report shows it"


def brief_lines(
    summary: RunSummary,
    lanes: Sequence[LaneStatus],
    *,
    directory: str,
    width: int,
    is_quiet: bool = False,
    has_page: bool = False,
    part: HostPart | None = None,
    paint: Callable[[str, float], str] = plain,
) -> list[str]:
    """At most `MOST_LINES` lines of at most `MOST_WIDTH` characters, safe for a terminal.

    Args:
        summary: What the compaction found.
        lanes: What became of each lane.
        directory: Where the results are, as it should be shown.
        width: Of the terminal, in characters.
        is_quiet: Whether only the verdict and the place of the results are wanted.
        has_page: Whether `report.html` stands there, too.
        part: Whose part of which run this is; None: the run is one host's.
        paint: Colours a share of solved cases, 0 to 1, that is written out already.
    """
    width = min(width, MOST_WIDTH)
    simulated = [SIMULATED] if summary.simulated else []
    more = int(_USUAL_WIDTH <= width < MOST_WIDTH)
    head = _folded([*simulated, verdict(summary, part)], width, _MOST_FOLDS + more)
    # A path is copied: it is never folded.
    path = f"results in {visible(directory)}: {_SHOWN if has_page else _NOT_SHOWN}"
    if is_quiet or (part is not None and not summary.statistics.n_planned):
        return [*head, path]
    tables = _Tables(summary, width, paint, _PAGE if has_page else REPORT)
    wholes = [tables.lines(beside_tests=True)] if tables.tests else []
    ways = (
        (MOST_LINES, MOST_LINES),
        (1 + more, _MOST_FOLDS + more),
        (1, _MOST_FOLDS + more),
        (1, 1),
    )
    for table, (few, many) in product([*wholes, tables.lines()], ways):
        blocks = [
            *_blocks(_speed(summary, lanes), width, few),
            *_blocks(_first(lane_lines(lanes)), width, few),
            *_blocks(_first(trouble_lines(summary)), width, many),
        ]
        rest = [*chain.from_iterable(blocks)]
        n_over = len(head) + len(table) + len(rest) + 3 - MOST_LINES
        if n_over <= 0:
            break
    else:
        n_rest = len(rest)
        rest = _most_telling(blocks, max(_LEAST_REST, n_rest - n_over))
        n_over -= n_rest - len(rest)
        table = tables.lines(tables.n_rows - max(0, n_over)) if n_over > 0 else table
    return [*head, "", *table, *([""] if table else []), *rest, path]


def _most_telling(blocks: Sequence[Sequence[str]], most: int) -> list[str]:
    """So many lines, in their order: warnings, then what stands first; and how many more."""
    kept: list[int] = []
    n_left = most
    for at in sorted(range(len(blocks)), key=lambda at: (not _must_be_read(blocks[at][0]), at)):
        n_left -= len(blocks[at])
        if n_left > 0:
            kept.append(at)
    n_more = len(blocks) - len(kept)
    lines = [*chain.from_iterable(blocks[at] for at in sorted(kept))]
    return [*lines, f"... and {counted(n_more, 'more line')}"] if n_more else lines


def _must_be_read(sentence: str) -> bool:
    return sentence.startswith(_WARNINGS) or LAST_TRY in sentence


def _folded(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    return [*chain.from_iterable(_blocks(sentences, width, most_lines))]


def _blocks(sentences: Iterable[str], width: int, most_lines: int) -> Iterator[list[str]]:
    """Lines of sentences, so many for each at most; what is cut off stands in the report."""
    for sentence in sentences:
        lines = textwrap.wrap(
            sentence,
            width,
            subsequent_indent="  ",
            max_lines=max(most_lines, _MOST_FOLDS if _must_be_read(sentence) else 1),
            placeholder=_MORE,
            break_on_hyphens=False,
        )
        yield [*lines[:-1], *(_HALF_A_CLAUSE.sub(rf"\1{_MORE}", line) for line in lines[-1:])]


def _first(sentences: Iterable[str]) -> list[str]:
    found = list(sentences)
    shown = found[:_MOST_OF_A_KIND]
    n_more = len(found) - len(shown)
    return [*shown, f"... and {counted(n_more, 'more line')}"] if n_more else shown


def _speed(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    yield from filter(None, [pace(summary), speedup_line(summary)])
    yield from performance_lines(summary, lanes)
    if summary.replayed is not None:
        yield replay_line(summary)
    elif summary.n_requests:
        yield "; ".join([counted(summary.n_requests, "request"), *cost_lines(summary)])


# -- models by what else varies --------------------------------------------------------------------


class _Tables:
    """All cases, and below them each test where there are several and all have room.

    Else tests are columns of the first table, if nothing else is asked for.

    Attributes:
        n_rows: Of the first table, as many as are shown where there is room.
        tests: Lines of the others.
    """

    def __init__(
        self, summary: RunSummary, width: int, paint: Callable[[str, float], str], where: str
    ) -> None:
        self._width, self._paint, self._where = width, paint, where
        self._by, self._cells = summary.summary_by, summary.cells
        only = summary.tests[0] if len(summary.tests) == 1 else None
        if only is not None and len(only.by) > 1:
            self._by, self._cells = only.by, only.cells
        self._rows, across = self._dimensions(self._by, self._cells)
        self._columns = {} if across is None else _across(self._cells, self._rows, across)
        names = _by_name(self._cells, self._rows)
        self.n_rows = min(_MOST_ROWS, len(names))
        self._several = summary.tests if len(summary.tests) > 1 else []
        self.tests = [line for one in self._several for line in ("", *self._of_test(one))]
        if summary.n_tests > len(self._several) > 0 or len(names) > _MOST_ROWS:
            self.tests = []

    def lines(self, most: int = _MOST_ROWS, *, beside_tests: bool = False) -> list[str]:
        """The first table, of so many rows at most, and the legend below all of them."""
        if not self.n_rows:
            return []
        columns = self._columns
        if self._several and not columns and not beside_tests:
            columns = {
                one.test.removeprefix("test_"): _by_name(one.cells, one.by.index(name))
                for one in self._several
                if (name := self._by[self._rows]) in one.by
            }
        title = "all cases" if self._several and beside_tests else self._by[self._rows]
        rows = _by_name(self._cells, self._rows)
        table, n_hidden = self._table(title, rows, columns, most, total=True)
        more = [counted(n_hidden, "more column")] if n_hidden else []
        legend = f"n: graded cases; {REPORT} has {', '.join(['intervals', *more])}"
        if len(rows) > most:
            legend = f"+ {len(rows) - most:,} more in {self._where}; {legend}"
        below = self.tests if beside_tests else []
        return [*table, *below, *_folded([legend], self._width, _MOST_FOLDS)]

    def _of_test(self, one: ResultsOfTest) -> list[str]:
        rows, across = self._dimensions(one.by, one.cells)
        columns = {} if across is None else _across(one.cells, rows, across)
        return self._table(one.test, _by_name(one.cells, rows), columns, _MOST_ROWS)[0]

    def _dimensions(self, by: Sequence[str], cells: Sequence[Cell]) -> tuple[int, int | None]:
        """Which of the names that are counted by are the rows, and which the columns, if any."""
        varying = [i for i in range(len(by)) if len({cell.names[i] for cell in cells}) > 1]
        rows, columns, *_ = [*varying, None, None]
        return rows or 0, columns

    def _table(
        self,
        title: str,
        rows: Mapping[str, Sequence[Cell]],
        columns: Columns,
        most_rows: int,
        *,
        total: bool = False,
    ) -> tuple[list[str], int]:
        """Its lines, the best first, and how many columns had no room."""
        everything = all_of([cell for own in rows.values() for cell in own])
        wholes = {name: all_of(own) for name, own in rows.items()}
        order = sorted(rows, key=lambda name: (-_rate(wholes[name], -1.0), name))[:most_rows]
        scores = [*everything.scores][:_MOST_SCORES]
        title, *names = [_name(name) for name in (title, *order)]
        room = self._width - max(map(n_cells, (title, *names))) - _N_AND_SOLVED
        above, below = _heads([*scores, *columns], room)
        heads = [["", "", "", *above]] if any(above) else []
        heads.append([title, "n", "solved", *below])
        shown = [*columns.values()][: max(0, len(below) - len(scores))]
        table = []
        for name, key in zip(names, order, strict=True):
            own = [all_of(cells.get(key, ())) for cells in shown]
            table.append(_row(name, wholes[key], own, scores[: len(below)]))
        if total and len(rows) > 1:
            own = [all_of([one for each in cells.values() for one in each]) for cells in shown]
            table.append(_row("all", everything, own, scores[: len(below)]))
        lines = text_table(heads[0], [*heads[1:], *table], n_names=1, width=self._width)
        painted = [
            _SHARE.sub(lambda share: self._paint(share[0], int(share[1]) / 100), line)
            for line in lines[len(heads) :]
        ]
        n_hidden = len(scores) + len(columns) - len(below)
        return [*lines[: len(heads)], *painted], n_hidden


def _row(name: str, cell: Cell, others: Iterable[Cell], scores: Iterable[str]) -> list[str]:
    means = [f"{cell.scores[one].mean:.2f}" if one in cell.scores else "-" for one in scores]
    solved, *shares = [f"{_rate(one):.0%}" if one.n_graded else "-" for one in (cell, *others)]
    return [name, f"{cell.n_graded:,}", solved, *means, *shares]


def _across(cells: Iterable[Cell], rows: int, columns: int) -> Columns:
    return {name: _by_name(own, rows) for name, own in _by_name(cells, columns).items()}


def _by_name(cells: Iterable[Cell], place: int) -> dict[str, list[Cell]]:
    return by_key((cell.names[place], cell) for cell in cells)


def _rate(cell: Cell, none: float = 0.0) -> float:
    """Solved cases of those that were graded."""
    return cell.counts["solved"] / cell.n_graded if cell.n_graded else none


def _line(name: str) -> str:
    return visible(name).replace("\n", " ")


def _name(name: str) -> str:
    return shorten(_line(name), _WIDEST_NAME)


def _heads(values: Sequence[str], room: int) -> tuple[list[str], list[str]]:
    """As many headings as fit, in two lines: a cell has four characters, a name twenty."""
    fair = room // len(values) - len(GAP) if values else 0
    width = max(_NARROWEST_HEAD, min(_WIDEST_HEAD, fair))
    above, below = [], []
    for value in values[: max(0, room // (width + len(GAP)))]:
        first, _, rest = _line(value).replace("-", "_").partition("_")
        above.append(_fitted(first, width) if rest else "")
        below.append(_fitted(rest or first, width))
    return above, below


def _fitted(word: str, width: int) -> str:
    return word if n_cells(word) <= width else f"{word[: width - 1]}."
