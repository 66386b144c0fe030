"""Summarise a finished run on one screen, most important facts first. All functions are pure."""

from __future__ import annotations

import re
import textwrap
from functools import partial
from itertools import chain, product
from math import inf
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.run_summary import ResultsOfTest, all_of
from pytest_ultrapar.broker.protocol import NO_LANE
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.report_file import PAGE, REPORT
from pytest_ultrapar.report.summary import (
    LAST_TRY,
    SIMULATED,
    cost_lines,
    figure_line,
    lane_lines,
    mean_text,
    pace,
    performance_lines,
    replay_line,
    resumed_lines,
    speedup_line,
    trouble_lines,
    verdict,
)
from pytest_ultrapar.report.text import GAP, counted, n_cells, shorten, text_table, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_ultrapar.analysis.run_summary import Cell, RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.report.cluster_progress import HostPart

MOST_LINES = 30
MOST_WIDTH = 100
_USUAL_WIDTH = 80
_MOST_ROWS = 20
_MOST_SCORES = 3
_LEAST_BESIDE_TESTS = 6
_LEAST_REST = 2
"""How many lines besides the table are kept if the rows of the table need more room."""
_MOST_OF_A_KIND = 3
"""The maximum number of lines on lanes. The same maximum applies to lines on cases without a grade,
and to the suite's figures."""
_MOST_FOLDS = 2
_WARNINGS = ("LIMIT EXCEEDED", "CLIENT-BOUND", "BLOCKED")
_WIDEST_HEAD = 12
_NARROWEST_HEAD = 7
_WIDEST_NAME = 30
_N_AND_SOLVED = 16
"""The width of the columns `n` and `solved` together, in characters."""
_WITH_INTERVAL = 24
"""The width of a mean with its interval, in characters. Such means are shown if no case has
a solve rate."""
_SHARE = re.compile(r"\b(\d+)%")
_REFUSED = re.compile("key .* was refused ")
_MORE = f" (more in {REPORT})"
_LAST_CLAUSE = re.compile(r"(?<=.{25})([,;] [^,;]*| \([^()]*\)?)$", re.DOTALL)


def plain(text: str, share: float) -> str:
    """Return the text without adding colour."""
    return text


_SHOWN = f"open {PAGE}, or read {REPORT}"
_NOT_SHOWN = f"read {REPORT}, or run ultrapar report"


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
    """Return at most `MOST_LINES` lines of at most `MOST_WIDTH` characters, safe for a terminal.

    Args:
        summary: The summary that the compaction made.
        lanes: The final state of each lane.
        directory: The directory of the results, as text to show.
        width: The width of the terminal, in characters.
        is_quiet: Whether to show only the verdict, one cause of failures, and the directory.
        has_page: Whether the directory contains `report.html`.
        part: The host and the run that it is part of; None for a run on one host.
        paint: Adds colour to the text of a solved share. The second argument is the share, from 0
            to 1.
    """
    width = min(width, MOST_WIDTH)
    simulated = [SIMULATED] if summary.simulated else []
    more = int(_USUAL_WIDTH <= width < MOST_WIDTH)
    head = _folded([*simulated, verdict(summary, part)], width, _MOST_FOLDS + more)
    # Never fold this line, because users copy the path from it.
    path = f"results in {visible(directory)}: {_SHOWN if has_page else _NOT_SHOWN}"
    if is_quiet or (part is not None and not summary.statistics.n_planned):
        why = _folded([*trouble_lines(summary)][1:2], width, _MOST_FOLDS)
        return [*head, *why, path]
    if _keys_are_wrong(summary, lanes):
        return [*head, "", *_folded(_wrong_keys(summary, lanes), width, MOST_LINES), path]
    where = PAGE if has_page else REPORT
    ways = ((MOST_LINES,) * 2, (1 + more, _MOST_FOLDS + more), (1, _MOST_FOLDS + more), (1, 1))
    made = [(one, *_lines(one, _MOST_ROWS, width, where)) for one in _tables(summary)]
    for (tables, table, n_rows), (few, many) in product(made, ways):  # noqa: B007 - used below
        blocks = [
            *_blocks(_speed(summary, lanes), width, few),
            *_blocks(_first(lane_lines(lanes)), width, few),
            *_blocks(_first(trouble_lines(summary)), width, many),
        ]
        n_rest = sum(map(len, blocks))
        n_over = len(head) + len(table) + n_rest + 3 - MOST_LINES
        is_last = (few, many) == ways[-1] and len(tables) > 1
        if n_over <= (n_rest - _LEAST_BESIDE_TESTS if is_last else 0):
            break
    if n_over > 0:  # results are more important than all other lines except for warnings
        blocks.sort(key=lambda lines: not _must_be_read(lines[0]))
    rest = [*chain.from_iterable(blocks)]
    if n_over > 0 and len(rest) > _LEAST_REST:
        n_kept = max(_LEAST_REST, len(rest) - n_over) - 1
        n_over -= len(rest) - n_kept - 1
        rest[n_kept:] = [f"... and {counted(len(rest) - n_kept, 'more line')}"]
    if n_over > 0:
        table, _ = _lines(tables, n_rows - n_over, width, where)
    painted = [
        _SHARE.sub(lambda share: paint(share[0], int(share[1]) / 100), line) for line in table
    ]
    return [*head, "", *painted, *([""] if table else []), *rest, path]


def _must_be_read(sentence: str) -> bool:
    return sentence.startswith(_WARNINGS) or LAST_TRY in sentence


def _keys_are_wrong(summary: RunSummary, lanes: Sequence[LaneStatus]) -> bool:
    """Whether every key was refused, so that no case could run."""
    refused = lanes and all(one.is_removed and _REFUSED.match(one.reason) for one in lanes)
    return bool(refused) and summary.n_infra(NO_LANE) == summary.statistics.n_planned


def _wrong_keys(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Yield lines on the refused keys, the providers' messages, and what to do."""
    yield from _first(line for line in lane_lines(lanes) if _REFUSED.match(line))
    words = [line.partition(LAST_TRY)[2] for line in trouble_lines(summary)]
    yield from (f"the provider said: {one}" for one in dict.fromkeys(words) if one)
    if any("(environment " in one.reason for one in lanes):
        yield "set each variable above to a valid key, then resume the run (the command is below)"
    else:
        yield (
            "no key was sent: in the pool, set env to the name of the environment variable that "
            "holds the key (see ultrapar init)"
        )


def _folded(sentences: Iterable[str], width: int, most_lines: int) -> list[str]:
    return [*chain.from_iterable(_blocks(sentences, width, most_lines))]


def _blocks(sentences: Iterable[str], width: int, most_lines: int) -> Iterator[list[str]]:
    """Fold each sentence into at most `most_lines`; if needed, drop its last clauses or cut it."""
    fold = partial(textwrap.wrap, width=width, subsequent_indent="  ", break_on_hyphens=False)
    for sentence in sentences:
        most = max(most_lines, _MOST_FOLDS if _must_be_read(sentence) else 1)
        shown = sentence
        while len(fold(shown)) > most and (at := _LAST_CLAUSE.search(shown)):
            shown = shown[: at.start()]
        yield fold(shown, max_lines=most, placeholder=_MORE)


def _first(sentences: Iterable[str]) -> list[str]:
    found = list(sentences)
    shown = found[:_MOST_OF_A_KIND]
    n_more = len(found) - len(shown)
    return [*shown, f"... and {counted(n_more, 'more line')}"] if n_more else shown


def _speed(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    yield from _first(map(figure_line, summary.figures))
    yield from filter(None, [pace(summary), speedup_line(summary)])
    yield from performance_lines(summary, lanes)
    yield from resumed_lines(summary)
    if summary.replayed is not None:
        yield replay_line(summary)
    elif summary.n_requests:
        yield "; ".join([counted(summary.n_requests, "request"), *cost_lines(summary)])


# -- models by another parameter -------------------------------------------------------------------


def _tables(summary: RunSummary) -> Iterator[list[ResultsOfTest]]:
    """Yield sets of tables to try, largest first.

    The largest set has a table for all cases and one for each test; the next is a single table.
    """
    tests = summary.tests
    every = ResultsOfTest("all cases", summary.summary_by, summary.cells)
    if 1 < len(tests) == summary.n_tests:
        yield [every, *tests]
    first, *more = every.by
    cells = [
        msgspec.structs.replace(cell, names=(cell.names[one.by.index(first)], one.test))
        for one in tests
        if first in one.by
        for cell in one.cells
    ]
    if len(tests) == 1 and len(tests[0].by) > 1:
        yield [msgspec.structs.replace(tests[0], test="")]
    elif more or len(tests) <= 1 or not cells:
        yield [msgspec.structs.replace(every, test="")]
    else:
        yield [ResultsOfTest("", (first, "test"), cells)]


def _lines(
    tables: Sequence[ResultsOfTest], most_rows: int, width: int, where: str
) -> tuple[list[str], int]:
    """Return the lines of the tables with their legend, and how many rows the first table shows."""
    if not tables[0].cells:
        return [], 0
    most_rows = max(1, most_rows)
    lines, n_rows, n_hidden = _of_table(tables[0], most_rows, width, total=True)
    for table in tables[1:]:
        own, _, hidden = _of_table(table, most_rows, width)
        lines += ["", *own]
        n_hidden += hidden
    n_shown = min(n_rows, most_rows)
    more = [counted(n_hidden, "more column")] if n_hidden else []
    more = ["intervals", *more] if _rates(tables[0]) else more
    legend = f"n: graded cases{f'; {REPORT} has ' * bool(more)}{' and '.join(more)}"
    legend += "" if _rates(tables[0]) else "; means with 95 % intervals"
    if n_rows > n_shown:
        legend = f"+ {counted(n_rows - n_shown, 'more row')} in {where}; {legend}"
    return [*lines, *_folded([legend], width, _MOST_FOLDS)], n_shown


def _of_table(
    table: ResultsOfTest, most_rows: int, width: int, *, total: bool = False
) -> tuple[list[str], int, int]:
    """Return the lines of a table, best row first.

    Also return how many rows it has in total, and how many columns are hidden.
    """
    varying = [i for i in range(len(table.by)) if len({one.names[i] for one in table.cells}) > 1]
    at, across, *_ = [*varying, None, None]
    rows = _by_name(table.cells, at or 0)
    wholes = {name: all_of(own) for name, own in rows.items()}
    if not at:
        wholes |= {one.names[0]: one for one in table.wholes}
    rates, everything = _rates(table), all_of(table.cells)
    scores = [*everything.scores][:_MOST_SCORES]
    rank = partial(_rate, none=-1.0) if rates else partial(_mean, score=scores[0])
    order = sorted(rows, key=lambda name: (-rank(wholes[name]), name))[:most_rows]
    columns = _by_name(table.cells if across is not None else (), across or 0)
    first = table.test or table.by[at or 0]
    title, *names = [shorten(_line(name), _WIDEST_NAME) for name in (first, *order)]
    room = width - max(map(n_cells, (title, *names))) - _N_AND_SOLVED
    if not rates:
        scores = scores[: max(1, room // _WITH_INTERVAL)]
        room -= (_WITH_INTERVAL - _WIDEST_HEAD) * len(scores)
    above, below = _heads([*scores, *(name.removeprefix("test_") for name in columns)], room)
    solved = ["solved"] if rates else []
    heads = [["", "", *([""] if rates else []), *above]] if any(above) else []
    heads.append([title, "n", *solved, *below])
    shown = [*columns][: max(0, len(below) - len(scores))]
    scores = scores[: len(below)]
    body = []
    for name, key in zip(names, order, strict=True):
        own = _by_name(rows[key], across or 0)
        each = [all_of(own.get(one, ())) for one in shown]
        body.append(_row(name, wholes[key], each, scores, rates=rates))
    if total and len(rows) > 1:
        each = [all_of(columns[one]) for one in shown]
        body.append(_row("all", everything, each, scores, rates=rates))
    lines = text_table(heads[0], [*heads[1:], *body], n_names=1, width=width)
    return lines, len(rows), len(everything.scores) + len(columns) - len(below)


def _row(
    name: str, cell: Cell, others: Iterable[Cell], scores: Sequence[str], *, rates: bool
) -> list[str]:
    head = [name, f"{cell.n_graded:,}"]
    if not rates:
        means = [mean_text(cell.scores[one], 2) if one in cell.scores else "-" for one in scores]
        firsts = [one.scores.get(scores[0]) for one in others]
        return [*head, *means, *(f"{one.mean:.2f}" if one else "-" for one in firsts)]
    means = [f"{cell.scores[one].mean:.2f}" if one in cell.scores else "-" for one in scores]
    solved, *shares = [f"{_rate(one):.0%}" if one.n_rated else "-" for one in (cell, *others)]
    solved = f"{solved} of {cell.n_rated:,}" if 0 < cell.n_rated < cell.n_graded else solved
    return [*head, solved, *means, *shares]


def _by_name(cells: Iterable[Cell], place: int) -> dict[str, list[Cell]]:
    return by_key((cell.names[place], cell) for cell in cells)


def _rates(table: ResultsOfTest) -> bool:
    """Whether the table shows solve rates. It does not if all its cases have only scores."""
    return any(cell.n_rated for cell in table.cells) or not any(one.scores for one in table.cells)


def _rate(cell: Cell, none: float = 0.0) -> float:
    """The share of solved cases among the cases that have a solve rate."""
    return cell.counts["solved"] / cell.n_rated if cell.n_rated else none


def _mean(cell: Cell, score: str) -> float:
    return cell.scores[score].mean if score in cell.scores else -inf


def _line(name: str) -> str:
    return visible(name).replace("\n", " ")


def _heads(values: Sequence[str], room: int) -> tuple[list[str], list[str]]:
    """Split headings into two lines, and drop those that do not fit.

    One line would be too long: a cell has only 4 characters, but a name about 20.
    """
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
