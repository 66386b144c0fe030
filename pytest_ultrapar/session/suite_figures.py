"""Metrics that a suite computes from all rows of a run, such as F1, Elo or corpus BLEU."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_ultrapar.analysis.repetitions import cells_of
from pytest_ultrapar.analysis.run_summary import RunSummary, WholeFigure, write_summary
from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.text import shortened, visible
from pytest_ultrapar.session.grading import finite
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Rows = list[Mapping[str, Any]]

HOOK = "pytest_ultrapar_figures"
N_RESAMPLES = 200
"""The number of resamples. It is just large enough for two digits of an interval's bounds, because
each resample computes the figure again, which may take a second."""
_LEAST_RESAMPLES = 0.9
"""The share of the resamples for which it must be possible to compute the figure. Too many missing
values would bias the interval."""
_NAME = re.compile(r"[^\s\[\]<>=]{1,100}")
_WANTED = "a figure is a finite number, (value, low, high), or a function of the rows"
_RAISED = (Exception, pytest.skip.Exception, pytest.fail.Exception, SystemExit)


def add_figures(
    config: pytest.Config, run_dir: Path, summary: RunSummary
) -> tuple[RunSummary, tuple[str, ...]]:
    """Compute the suite's figures and store them in the run's summary.

    Args:
        config: pytest's configuration, with the suite's conftests loaded.
        run_dir: The directory of a run that has tables.
        summary: The run's summary, from that directory.

    Returns:
        The summary with the figures, and a sentence for each figure that failed.

    Raises:
        ResultsError: A table cannot be read, or the summary cannot be written.
    """
    found: dict[str, WholeFigure] = {}
    faults: list[str] = []
    hooks = getattr(config.hook, HOOK).get_hookimpls()
    if hooks:
        found_rows = read_rows(run_dir, "results", (), beginning=("",))  # all columns
        # Read-only, so that no function changes the rows of the next one.
        rows: Rows = [*map(MappingProxyType, found_rows)]
        cases = read_cases(run_dir)
        cells = cells_of(cases)
        clusters = {one.case_id: one.cluster or cells[one.case_id] or one.case_id for one in cases}
    for hook in hooks:
        known = {"config": config, "rows": [*rows]}
        code = inspect.unwrap(hook.function).__code__
        place = f"{HOOK} ({code.co_filename}:{code.co_firstlineno})"
        try:
            said = hook.function(*(known[name] for name in hook.argnames))
            if not isinstance(said, Mapping | None):
                shown = shortened(repr(said), 100)
                refuse(f"returned {shown}: it must be a dict of figures by name; {_WANTED}")
            for name, figure in (said or {}).items():
                try:
                    found[name] = _figure(name, figure, rows, clusters)
                except _RAISED as error:
                    faults.append(f"{place}: figure {name!r} {_words(error)}")
        except _RAISED as error:
            faults.append(f"{place} {_words(error)}")
    if [*found.values()] != summary.figures:
        summary = msgspec.structs.replace(summary, figures=[*found.values()])
        write_summary(run_dir, summary)
    return summary, (*faults,)


def _words(error: BaseException) -> str:
    said = visible(str(error))
    return said if isinstance(error, ConfigError) else f"raised {type(error).__name__}: {said}"


def _figure(name: str, said: Any, rows: Rows, clusters: Mapping[str, str]) -> WholeFigure:  # noqa: ANN401
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            "needs another name: a string of 1 to 100 characters, without spaces or any of []<>="
        )
    if callable(said):
        return WholeFigure(name, _number(said([*rows])), _interval(said, rows, clusters))
    if isinstance(said, (tuple, list)) and len(said) == 3:  # noqa: PLR2004 - as `_WANTED` says
        value, low, high = map(_number, said)
        if low > high:
            refuse(f"is {said!r}: {_WANTED}")
        return WholeFigure(name, value, (low, high))
    return WholeFigure(name, _number(said))


def _number(said: Any) -> float:  # noqa: ANN401
    number = finite(said)
    if number is None:
        refuse(f"is {shortened(repr(said), 100)}: {_WANTED}")
    return number


def _interval(
    figure: Callable[[Rows], Any], rows: Rows, clusters: Mapping[str, str]
) -> tuple[float, float] | None:
    """The 95 % interval from resampled case clusters; None if there are too few values.

    Source: B. Efron, R. J. Tibshirani, An introduction to the bootstrap (1993), ch. 13: the
        percentile interval.
    """
    import numpy as np  # noqa: PLC0415 - heavy, and few runs have such figures

    own: Sequence[Rows] = [*by_key((clusters[one["case_id"]], one) for one in rows).values()]
    draw = np.random.default_rng(0)
    values = []
    for drawn in draw.integers(len(own), size=(N_RESAMPLES, len(own))):
        with suppress(*_RAISED):  # a resample may lack rows that the figure needs
            values.append(_number(figure([row for at in drawn for row in own[at]])))
    if len(own) < 2 or len(values) < _LEAST_RESAMPLES * N_RESAMPLES:  # noqa: PLR2004 - there is no spread
        return None
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    return low, high
