"""The end of a run on one screen: what matters first, and where the rest is; pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.file import REPORT
from pytest_ultrapar.report.summary import (
    SIMULATED,
    lane_lines,
    pace,
    performance_lines,
    replay_line,
    trouble_lines,
    waits_line,
)
from pytest_ultrapar.report.text import (
    counted,
    n_cells,
    percent,
    shorten,
    times,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_ultrapar.analysis.run_summary import Cell, RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.report.whole_run import HostPart

MOST_LINES = 30
MOST_WIDTH = 100
_USUAL_WIDTH = 80
_MOST_ROWS = 12
_LEAST_ROWS = 4
_MOST_OF_A_KIND = 3
"""Lines on lanes, and as many on cases without a grade."""
_MOST_FOLDS = 2
_CLAUSES = (", ", "; ")
_CUT = " ..."
_SHORTER = 80
_WARNINGS = ("LIMIT EXCEEDED", "CLIENT-BOUND")
_WIDEST_HEAD = 12
_NARROWEST_HEAD = 7
_WIDEST_NAME = 30
_GAP = 2
_BELOW_ROWS = 3
"""All cases together, and the legend."""
_N_WIDTH = 7
_SOLVED_WIDTH = 8


def plain(text: str, share: float) -> str:
    """No colour, whatever the share."""
    return text


_SHOWN = f"open report.html, or read {REPORT}"
_NOT_SHOWN = f"{REPORT} tells more, ultrapar report shows it"


def brief_lines(
    summary: RunSummary,
    lanes: Sequence[LaneStatus],
    *,
    directory: str,
    width: int,
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
        has_page: Whether `report.html` stands there, too.
        part: Whose part of which run this is; None: the run is one host's.
        paint: Colours a share of solved cases, 0 to 1, that is written out already.
    """
    width = min(width, MOST_WIDTH)
    *head, path = quiet_lines(
        summary, directory=directory, width=width, has_page=has_page, part=part
    )
    if part is not None and not summary.statistics.n_planned:
        return [*head, path]
    rest = [
        *_folded(_speed(summary, lanes), width, 1),
        *_first(lane_lines(lanes), width, 1),
        *_first(trouble_lines(summary), width, _MOST_FOLDS),
        path,
    ]
    room = MOST_LINES - len(head) - len(rest) - 2
    table = _table(summary, width, max(_LEAST_ROWS, room), paint) if summary.cells else []
    return [*head, "", *table, *([""] if table else []), *rest]


def quiet_lines(
    summary: RunSummary,
    *,
    directory: str,
    width: int,
    has_page: bool = False,
    part: HostPart | None = None,
) -> list[str]:
    """The verdict, and where the results are; `brief_lines` has the arguments."""
    width = min(width, MOST_WIDTH)
    return [
        *_folded([SIMULATED] if summary.simulated else [], width, _MOST_FOLDS),
        *_folded([_verdict(summary, part)], width, _MOST_FOLDS),
        # A path is copied: it is never folded.
        f"results in {visible(directory)}: {_SHOWN if has_page else _NOT_SHOWN}",
    ]


def _folded(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    """Lines of sentences, so many for each at most, and one more on a terminal of `_USUAL_WIDTH`.

    What is cut off, where a clause ends if it can be, stands in the report.
    """
    lines: list[str] = []
    for sentence in sentences:
        most = _MOST_FOLDS if sentence.startswith(_WARNINGS) else most_lines
        lines += textwrap.wrap(
            _first_clauses(sentence, most),
            width,
            subsequent_indent="  ",
            max_lines=most + (_USUAL_WIDTH <= width < MOST_WIDTH),
            placeholder=" ...",
            break_on_hyphens=False,
        )
    return lines


def _first_clauses(sentence: str, n_lines: int) -> str:
    """As many of its clauses as fit, if these are most of what fits."""
    # Lines are folded between words, so each may end a little early.
    room = MOST_WIDTH + (n_lines - 1) * _SHORTER
    if len(sentence) <= room:
        return sentence
    begun = sentence[: room - len(_CUT)]
    end = max(begun.rfind(mark) for mark in _CLAUSES)
    return f"{begun[: end + 1]}{_CUT}" if end > room / 2 else sentence


def _first(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    found = list(sentences)
    shown = found[:_MOST_OF_A_KIND]
    n_more = len(found) - len(shown)
    more = [f"... and {n_more:,} more lines"] if n_more else []
    return _folded([*shown, *more], width, most_lines)


def _verdict(summary: RunSummary, part: HostPart | None) -> str:
    statistics = summary.statistics
    if part is not None and not statistics.n_planned:
        # All of nothing would read as a success.
        return f"host {part.host} ran none of the {counted(part.n_cases, 'case')} of run {part.run}"
    counts = {name: n for name, n in statistics.counts.items() if n or name == "solved"}
    without = {
        "finished but not graded": summary.n_ungraded,
        "interrupted": summary.n_interrupted,
        "never ran": summary.n_never_ran,
    }
    counts |= {name: n for name, n in without.items() if n}
    said = ", ".join(f"{n:,} {name}" for name, n in counts.items())
    cases = counted(statistics.n_planned, "case")
    if part is not None:
        cases = f"{statistics.n_planned:,} of {counted(part.n_cases, 'case')} on host {part.host}"
    return f"{cases}: {said}; coverage {percent(statistics.coverage)}"


def _speed(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    statistics = summary.statistics
    yield from filter(None, [pace(summary)])
    if statistics.speedup is not None and summary.mode != "serial" and statistics.n_timed > 1:
        basis = "measured" if statistics.basis == "full" else statistics.basis
        yield f"{times(statistics.speedup)} as fast as one after another ({basis})"
    yield from performance_lines(summary, lanes)
    yield from filter(None, [waits_line(lanes, 1, summary.audit)])
    if summary.replayed is not None:
        yield replay_line(summary)
    elif summary.n_requests:
        yield ", ".join([counted(summary.n_requests, "request"), *_money(summary)])


def _money(summary: RunSummary) -> Iterator[str]:
    if (cost := summary.cost) is not None:
        yield f"cost {money(cost.total, cost.currency)}"
        if cost.n_unknown:
            yield f"without {counted(cost.n_unknown, 'request')} whose cost is not known"


# -- models by what else varies --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Share:
    """Solved cases of those that were graded."""

    n_solved: int
    n: int

    @property
    def share(self) -> float:
        return self.n_solved / self.n if self.n else 0.0

    def shown(self, width: int, paint: Callable[[str, float], str]) -> str:
        text = f"{self.share:.0%}" if self.n else "-"
        return " " * (width - len(text)) + (paint(text, self.share) if self.n else text)


def _table(
    summary: RunSummary, width: int, most_lines: int, paint: Callable[[str, float], str]
) -> list[str]:
    by, across = _dimensions(summary)
    rows: dict[str, list[Cell]] = {}
    for cell in summary.cells:
        rows.setdefault(cell.names[by], []).append(cell)
    title = summary.summary_by[by]
    n_name = min(_WIDEST_NAME, max(n_cells(_line(name)) for name in (title, *rows)))
    values = [] if across is None else list(dict.fromkeys(c.names[across] for c in summary.cells))
    heads = _heads(values, width - n_name - _N_WIDTH - _SOLVED_WIDTH)
    # The worst first: who looks at the end of a run looks for what went wrong.
    order = sorted(rows, key=lambda name: _share(rows[name]).share)
    most_rows = min(_MOST_ROWS, most_lines - len(heads.lines) - _BELOW_ROWS)
    shown = order[: max(1, most_rows)]
    lines = _heading(title, n_name, heads)
    everything = [("all", summary.cells)] if len(rows) > 1 else []
    for name, cells in [*((name, rows[name]) for name in shown), *everything]:
        whole = _share(cells)
        line = f"{_name(name, n_name)}{whole.n:>{_N_WIDTH}}{whole.shown(_SOLVED_WIDTH, paint)}"
        for value in values[: heads.n]:
            part = _share(cell for cell in cells if cell.names[across or 0] == value)
            line += part.shown(heads.width, paint)
        lines.append(line)
    left_out = [counted(len(order) - len(shown), "more row")] if len(shown) < len(order) else []
    if heads.n < len(values):
        left_out.append(counted(len(values) - heads.n, "more column"))
    legend = f"n: graded cases; {REPORT} has {', '.join(['intervals', *left_out])}"
    return [*lines, *_folded([legend], width, _MOST_FOLDS)]


def _dimensions(summary: RunSummary) -> tuple[int, int | None]:
    """Which of the names that are counted by are the rows, and which the columns, if any."""
    places = range(len(summary.summary_by))
    varying = [i for i in places if len({cell.names[i] for cell in summary.cells}) > 1]
    rows, columns, *_ = [*varying, None, None]
    return rows or 0, columns


def _share(cells: Iterable[Cell]) -> _Share:
    counted_cells = [(cell.counts["solved"], cell.n_graded) for cell in cells]
    return _Share(sum(n for n, _ in counted_cells), sum(n for _, n in counted_cells))


def _line(name: str) -> str:
    return visible(name).replace("\n", " ")


def _name(name: str, width: int) -> str:
    shown = shorten(_line(name), width)
    return shown + " " * (width - n_cells(shown))


@dataclass(frozen=True, slots=True)
class _Heads:
    """Headings of columns.

    Attributes:
        lines: One or two, of a text for each column that fits.
        width: Of a column, the gap before it included.
        n: How many fit.
    """

    lines: tuple[tuple[str, ...], ...]
    width: int
    n: int


def _heads(values: Sequence[str], room: int) -> _Heads:
    """Headings whose words stand below each other: a cell has four characters, a name twenty."""
    words = [_line(value).replace("-", "_").split("_", 1) for value in values]
    longest = max((n_cells(word) for pair in words for word in pair), default=0)
    fair = room // len(values) - _GAP if values else 0
    width = max(_NARROWEST_HEAD, min(longest, _WIDEST_HEAD, fair))
    n = min(len(values), max(0, room // (width + _GAP)))
    pairs = [pair if len(pair) > 1 else ["", *pair] for pair in words[:n]]
    lines = [tuple(_fitted(word, width) for word in line) for line in zip(*pairs, strict=True)]
    return _Heads(tuple(line for line in lines if any(line)), width + _GAP, n)


def _fitted(word: str, width: int) -> str:
    return word if n_cells(word) <= width else f"{word[: width - 1]}."


def _heading(title: str, n_name: int, heads: _Heads) -> list[str]:
    first = f"{_name(title, n_name)}{'n':>{_N_WIDTH}}{'solved':>{_SOLVED_WIDTH}}"
    *above, last = heads.lines or ((),)
    blank = " " * len(first)
    return [
        lead + "".join(" " * (heads.width - n_cells(word)) + word for word in words)
        for lead, words in [*((blank, line) for line in above), (first, last)]
    ]
