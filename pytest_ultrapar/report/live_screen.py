"""Draw a `LiveView` with rich, as lines of text for a terminal.

This module is imported only when something is drawn. Lines are built from `rich.text.Text`, which
handles the width of characters and the colour codes. Rich's own tables are too slow: they would
take 5 ms to lay out 20 rows, twice a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import RATED
from pytest_ultrapar.report.live_view import room, shown
from pytest_ultrapar.report.progress import said
from pytest_ultrapar.report.text import GAP, duration, percent, shorten, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.report.live_view import Failure, LaneRow, LiveView, ModelRow, Use

_BARS = ("█░", "#.")
"""The characters for the full and the empty part of a bar, in pairs. The second pair is for
terminals that cannot show the first pair."""
_BAR, _COUNT, _RATE, _CASES, _SHARE = 10, 9, 11, 13, 25
_LEAST_BAR = 8
_LEAST_NAME = 12
_NARROW = 70
"""If a terminal has fewer columns than this, bars are left out."""
_NEARLY = 0.95
_MORE = 3
"""If a part of the screen has fewer lines than this, the number of hidden rows is not shown."""


class LiveScreen:
    """Turns views into lines of text for one terminal."""

    def __init__(self, *, colour: bool, encoding: str) -> None:
        """Set up the screen for a terminal.

        Args:
            colour: Whether the terminal shows colours. If it does not, lines contain no control
                sequences.
            encoding: The terminal's encoding.
        """
        self._console = Console(color_system=None, markup=False, emoji=False, highlight=False)
        self._colours = ColorSystem.STANDARD if colour else None
        self._bar = next(one for one in _BARS if _has(encoding, one))

    def lines(self, view: LiveView, width: int, n_lines: int) -> list[str]:
        """Return at most `n_lines` lines of at most `width` columns.

        Control characters in names and messages are escaped.
        """
        texts = [*self._head(view, width)]
        parts = room(view, n_lines - len(texts))
        if parts.lanes:
            texts += self._lanes(view.lanes, parts.lanes, width)
        if parts.models:
            texts += _models(view.models, parts.models, width)
        if parts.failures:
            texts += _failures(view.failures, parts.failures, width)
        return [self._drawn(text, width) for text in texts[:n_lines]]

    def _head(self, view: LiveView, width: int) -> Iterator[Text]:
        state = view.progress
        facts = said(state, view.now_s)
        first = [facts.pop(name) for name in ("step", "ETA") if name in facts]
        if len(first) > 1 and view.eta_s is not None and not state.all_answered:
            since_s = view.now_s - state.eta_at_s
            low, high = (duration(max(0.0, end_s - since_s)) for end_s in view.eta_s)
            first[-1] += f" ({low} to {high})"
        line = Text(", ".join(first), "bold")
        mark = f"{GAP}SIMULATED" if view.is_simulated else ""
        n_bar = min(width - cell_len(line.plain) - len(mark) - len(GAP), 4 * _BAR)
        n_done, n_all = state.graded, state.total
        if state.whole is not None:
            n_done, n_all = state.whole.n_done, state.whole.n_cases
        if n_bar >= _LEAST_BAR and n_all:
            line.append(GAP + self._filled(n_done / n_all, n_bar), "green")
        line.append(mark, "magenta")
        yield line
        # These outcomes are shown in the rows of models.
        for outcome in RATED:
            facts.pop(outcome, None)
        # Give this fact its own line. If the host sends nothing, it is the most important one.
        of_host = facts.pop("waits", "") or facts.pop("share", "")
        waiting = f"{view.waiting:,} waiting" if view.waiting and not state.all_answered else ""
        flying = [facts.pop("in flight", ""), waiting, *facts.values()]
        yield Text(", ".join(_plain(text) for text in flying if text))
        if of_host:
            yield Text(_plain(of_host), "yellow" if state.waits else "")
        if view.spent is not None:
            spent = money(view.spent.amount, view.spent.currency)
            whole = money(view.spent.projected, view.spent.currency)
            here = " here" if state.whole is not None else ""
            yield Text(f"{spent} spent{here}, about {whole} expected in total")

    def _lanes(self, rows: Sequence[LaneRow], n_lines: int, width: int) -> Iterator[Text]:
        kept, n_more = shown(rows, n_lines)
        n_bar = _BAR if width >= _NARROW else 0
        # If there are 80 columns, this leaves about 20 for the limit that a lane waits for.
        name = _name_width(
            [row.lane for row in kept], (width - n_bar - _COUNT - _RATE - 3 * len(GAP)) * 3 // 5
        )
        head = (_cell("lane", name), "in flight".ljust(n_bar + _COUNT), "per second".rjust(_RATE))
        yield Text(GAP.join((*head, "waits for")), "dim")
        for row in kept:
            yield self._lane(row, name, n_bar)
        if n_more and n_lines >= _MORE:
            yield Text(f"+ {n_more:,} more", "dim")

    def _lane(self, row: LaneRow, name: int, n_bar: int) -> Text:
        line = Text(_cell(row.lane, name) + GAP)
        if row.trouble:
            # Show the reason instead of the unused seats. It says more, and may be long.
            why = _plain(row.trouble.removeprefix(f"lane {row.lane} "))
            return line.append(why, "red" if row.is_removed else "yellow")
        if n_bar and row.seats.most is not None:
            share = row.seats.share if row.seats.most or row.seats.used else 0.0
            line.append(self._filled(share, n_bar), "yellow" if share >= 1 else "green")
        else:
            line.append(" " * n_bar)
        line.append(_used(row.seats, ",.0f", ",.0f").rjust(_COUNT) + GAP)
        is_full = row.rate is not None and row.rate.share >= _NEARLY
        line.append(_used(row.rate, ",.1f", ",.3g").rjust(_RATE) + GAP, "yellow" if is_full else "")
        return line.append(_plain(row.waits_for), "cyan")

    def _filled(self, share: float, n: int) -> str:
        n_full = round(min(1.0, max(0.0, share)) * n)
        return self._bar[0] * n_full + self._bar[1] * (n - n_full)

    def _drawn(self, text: Text, width: int) -> str:
        text.truncate(width)
        if self._colours is None:
            return text.plain
        return "".join(
            part.text
            if part.style is None
            else part.style.render(part.text, color_system=self._colours)
            for part in text.render(self._console)
        )


def _models(rows: Sequence[ModelRow], n_lines: int, width: int) -> Iterator[Text]:
    kept, n_more = shown(rows, n_lines)
    name = _name_width([row.model for row in kept], width - _CASES - _SHARE - 2 * len(GAP))
    head = (_cell("model", name), "cases".rjust(_CASES), "solved, 95 % interval")
    yield Text(GAP.join(head), "dim")
    for row in kept:
        cases = f"{row.n_done:,}/{row.n_planned:,}".rjust(_CASES)
        line = Text(_cell(row.model, name) + GAP + cases + GAP)
        if row.interval is not None:
            low, high = row.interval
            line.append(percent(row.n_solved / row.n_rated), "bold")
            line.append(f", {low * 100:.1f} to {high * 100:.1f} %")
        yield line
    if n_more and n_lines >= _MORE:
        yield Text(f"+ {n_more:,} more", "dim")


def _failures(rows: Sequence[Failure], n_lines: int, width: int) -> Iterator[Text]:
    yield Text("latest failures", "dim")
    # The first line of the screen already shows the number of failures.
    for row in rows[: n_lines - 1]:
        case = shorten(_plain(row.case), max(_LEAST_NAME, width * 2 // 5))
        yield Text.assemble((row.outcome, "red"), f"{GAP}{case}: {_plain(row.reason)}")


def _plain(text: str) -> str:
    """Put a string on one line and escape its control characters.

    Markup need not be escaped, because `Text` does not parse markup.
    """
    return " ".join(visible(text).split())


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _name_width(names: Sequence[str], most: int) -> int:
    return max(_LEAST_NAME, min(most, max(map(cell_len, map(_plain, names)), default=0)))


def _cell(name: str, width: int) -> str:
    name = _plain(name)
    # If each character takes one column, also keep the end of the name, because names often differ
    # at the end.
    return set_cell_size(shorten(name, width) if cell_len(name) == len(name) else name, width)


def _used(use: Use | None, used: str, most: str) -> str:
    """Format a use as two numbers, such as `3/10`; `used` and `most` are the numbers' formats."""
    if use is None or use.most is None:
        return "" if use is None else format(use.used, used)
    if not use.most and not use.used:
        # The limit is shared by several hosts, and this host has no share of it.
        return "no share"
    return f"{use.used:{used}}/{use.most:{most}}"
