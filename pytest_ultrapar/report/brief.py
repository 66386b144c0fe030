"""The end of a run on one screen: what matters first, and where the rest is; pure."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import NO_LANE
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
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_ultrapar.analysis.run_summary import Cell, RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.report.whole_run import HostPart

MOST_LINES = 30
MOST_WIDTH = 100
_USUAL_WIDTH = 80
_MOST_ROWS = 12
_LEAST_ROWS = 4
"""Of the table, as long as what else there is to say fits beside it in a line each."""
_MOST_OF_A_KIND = 3
"""Lines on lanes, and as many on cases without a grade."""
_MOST_FOLDS = 2
_WARNINGS = ("LIMIT EXCEEDED", "CLIENT-BOUND", "BLOCKED")
_WIDEST_HEAD = 12
_NARROWEST_HEAD = 7
_WIDEST_NAME = 30
_AROUND_ROWS = 5
"""Lines: headings, all cases together, and the legend."""
_N_AND_SOLVED = 16
"""Characters of these two columns."""
_SHARE = re.compile(r"\b(\d+)%")
_REFUSED = re.compile("key .* was refused ")
_HALF_A_CLAUSE = re.compile(r"(.{30}[,;]) [^,;]* \.\.\.$")


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
    if _keys_are_wrong(summary, lanes):
        return [*head, "", *_first(lane_lines(lanes), width, _MOST_FOLDS), path]
    for few, many in ((1 + more, _MOST_FOLDS + more), (1, _MOST_FOLDS + more), (1, 1)):
        rest = [
            *_folded(_speed(summary, lanes), width, few),
            *_first(lane_lines(lanes), width, few),
            *_first(trouble_lines(summary), width, many),
            path,
        ]
        room = MOST_LINES - len(head) - len(rest) - 2
        if room >= _LEAST_ROWS + _AROUND_ROWS:
            break
    has_table = summary.cells and summary.statistics.n_graded
    table = _table(summary, width, room, paint) if has_table else []
    return [*head, "", *table, *([""] if table else []), *rest]


def _keys_are_wrong(summary: RunSummary, lanes: Sequence[LaneStatus]) -> bool:
    """Whether no case was asked since each key was refused: of such a run there is no more."""
    refused = lanes and all(one.is_removed and _REFUSED.match(one.reason) for one in lanes)
    return bool(refused) and summary.n_infra(NO_LANE) == summary.statistics.n_planned


def _folded(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    """Lines of sentences, so many for each at most; what is cut off stands in the report."""
    lines: list[str] = []
    for sentence in sentences:
        must_be_read = sentence.startswith(_WARNINGS) or LAST_TRY in sentence
        lines += textwrap.wrap(
            sentence,
            width,
            subsequent_indent="  ",
            max_lines=max(most_lines, _MOST_FOLDS if must_be_read else 1),
            placeholder=" ...",
            break_on_hyphens=False,
        )
        lines[-1:] = [_HALF_A_CLAUSE.sub(r"\1 ...", line) for line in lines[-1:]]
    return lines


def _first(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    found = list(sentences)
    shown = found[:_MOST_OF_A_KIND]
    n_more = len(found) - len(shown)
    more = [f"... and {counted(n_more, 'more line')}"] if n_more else []
    return _folded([*shown, *more], width, most_lines)


def _speed(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    yield from filter(None, [pace(summary), speedup_line(summary)])
    yield from performance_lines(summary, lanes)
    if summary.replayed is not None:
        yield replay_line(summary)
    elif summary.n_requests:
        yield "; ".join([counted(summary.n_requests, "request"), *cost_lines(summary)])


# -- models by what else varies --------------------------------------------------------------------


def _table(
    summary: RunSummary, width: int, most_lines: int, paint: Callable[[str, float], str]
) -> list[str]:
    by, across = _dimensions(summary)
    rows = _by_name(summary.cells, by)
    # The worst first: who looks at the end of a run looks for what went wrong.
    order = sorted(rows, key=lambda name: _rate(rows[name]) or 0.0)
    shown = order[: max(1, min(_MOST_ROWS, most_lines - _AROUND_ROWS))]
    title, *names = [_name(name) for name in (summary.summary_by[by], *shown)]
    values = [] if across is None else list(_by_name(summary.cells, across))
    room = width - max(map(n_cells, (title, *names))) - _N_AND_SOLVED
    above, below = _heads(values, room)
    heads = [["", "", "", *above]] if any(above) else []
    heads.append([title, "n", "solved", *below])
    named = [*zip(names, map(rows.__getitem__, shown), strict=True)]
    everything = [("all", summary.cells)] if len(rows) > 1 else []
    table = []
    for name, cells in [*named, *everything]:
        own = _by_name(cells, across or 0)
        shares = [_rate(cells), *(_rate(own.get(value, ())) for value in values[: len(below)])]
        n = sum(cell.n_graded for cell in cells)
        table.append([name, f"{n:,}", *("-" if one is None else f"{one:.0%}" for one in shares)])
    lines = text_table(heads[0], [*heads[1:], *table], n_names=1, width=width)
    painted = [
        _SHARE.sub(lambda share: paint(share[0], int(share[1]) / 100), line)
        for line in lines[len(heads) :]
    ]
    left_out = [counted(len(order) - len(shown), "more row")] if len(shown) < len(order) else []
    if len(below) < len(values):
        left_out.append(counted(len(values) - len(below), "more column"))
    legend = f"n: graded cases; {REPORT} has {', '.join(['intervals', *left_out])}"
    return [*lines[: len(heads)], *painted, *_folded([legend], width, _MOST_FOLDS)]


def _dimensions(summary: RunSummary) -> tuple[int, int | None]:
    """Which of the names that are counted by are the rows, and which the columns, if any."""
    places = range(len(summary.summary_by))
    varying = [i for i in places if len({cell.names[i] for cell in summary.cells}) > 1]
    rows, columns, *_ = [*varying, None, None]
    return rows or 0, columns


def _by_name(cells: Iterable[Cell], place: int) -> dict[str, list[Cell]]:
    return by_key((cell.names[place], cell) for cell in cells)


def _rate(cells: Sequence[Cell]) -> float | None:
    """Solved cases of those that were graded; None where none was."""
    n = sum(cell.n_graded for cell in cells)
    return sum(cell.counts["solved"] for cell in cells) / n if n else None


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
