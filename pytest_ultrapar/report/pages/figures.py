"""Read the figures for an HTML report from the run's tables, as data that a test can recompute."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_ultrapar.analysis.measures import CaseMeasure
from pytest_ultrapar.analysis.repetitions import cells_of, mean_interval_of, questions_of, share_of
from pytest_ultrapar.analysis.statistics import mean_of, quantile
from pytest_ultrapar.analysis.table_layouts import MOST_VALUES, TEST, Uses, shown_tests
from pytest_ultrapar.errors import unusable
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import GRADED, LABEL, META, RATED, function_of
from pytest_ultrapar.report.pages.case_times import case_times
from pytest_ultrapar.report.pages.columns import (
    LANE,
    Coded,
    Column,
    coded,
    floats,
    grouped,
    lane_names,
    mask,
    places,
    texts,
)
from pytest_ultrapar.report.pages.lanes import (
    LaneUse,
    LimitLine,
    LimitUse,
    lane_uses,
    limit_lines,
    limit_uses,
    n_refused,
    requests_sent,
)
from pytest_ultrapar.report.pages.models import (
    ComparedWithBest,
    ModelCost,
    PassAt,
    compare_with_best,
    model_costs,
    passes,
)
from pytest_ultrapar.report.text import one_line, visible
from pytest_ultrapar.store.cases_file import read_cases, read_tables
from pytest_ultrapar.store.table_rows import read_columns, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pytest_ultrapar.records import Scalar
    from pytest_ultrapar.report.pages.columns import Floats, Numbers
    from pytest_ultrapar.store.manifest import Manifest

_LONGEST_LABEL = 60
_LONGEST_NAME = 300
_LONGEST_PARAM = 500
_LONGEST_ERROR = 4_000
_PARAM = "param."
_FACTS = (_PARAM, META, LABEL)
_SCORE = "score."
_ORDER = ("error", "infra", "unsolved", "partial", "skipped", "scored", "solved")
"""The outcomes. The most interesting ones come first."""
_TEXTS = ("case_id", "nodeid", "model", "outcome", "kind", "error")
_TIMES = ("queue_wait_s", "rate_wait_s", "backoff_s", "service_s", "duration_s")
_COUNTS = ("n_attempts", "n_turns", "tokens_in", "tokens_out")
_SENT = ("t_ready_s", "t_lease_s", "t_send_s", "t_first_token_s", "t_end_s")
_ATTEMPTS = ("case_id", *LANE, *_SENT, "outcome", "tokens_in", "tokens_out", "role")
_LIMITS = ("limit", "t_s", "workers", "reason")
_PAUSES = (*LANE, "cause", "t_s", "t_end_s")


class HeatmapCell(msgspec.Struct, frozen=True):
    """The graded cases of one model with one value of a parameter.

    Attributes:
        low: The lower end of the 95 % interval of the solve rate, or of the mean. None if there is
            no interval.
        high: The upper end of the interval; None if there is no interval.
        mean: The mean of the score that the page shows if no case has a solve rate; otherwise None.
        share: The position of the mean on a scale from the smallest value in any case (0) to the
            largest (1).
    """

    n: int
    n_solved: int
    n_partial: int
    low: float | None
    high: float | None
    mean: float | None = None
    share: float = 0.0


class Dimension(msgspec.Struct, frozen=True):
    """A table with the figures of each model for each value of one parameter.

    Attributes:
        name: The parameter's name. It is empty if the table is for all cases together.
        values: The texts that are shown for the values; no two are equal.
        squares: For each model, a cell for each value.
    """

    name: str
    values: list[str]
    squares: list[list[HeatmapCell]]


class Curve(msgspec.Struct, frozen=True):
    """How a time is distributed over cases or requests.

    Attributes:
        p50_s: The median. Like `p95_s`, it is interpolated between two values, as in the summary.
    """

    model: str
    n: int
    shortest_s: float
    p50_s: float
    p95_s: float
    longest_s: float


class Figures(msgspec.Struct, frozen=True):
    """All figures on the page, except for those in the sections of the report."""

    suites: list[str]
    cases: dict[str, Any]
    """The list of cases, as columns by name. A column is a list or a `Coded`."""
    params: dict[str, Coded]
    """The parameters, metadata and labels of each case, by name."""
    at: list[list[int | None]]
    """For each of `dimensions`, the index of each case's value. It is None for a case without a
    value."""
    parts: dict[str, list[float]]
    """The parts of each case's duration, by name. They add up to `duration_s`."""
    models: list[str]
    """The texts that are shown for the models; no two are equal."""
    dimensions: list[Dimension]
    curves: list[Curve]
    """By model: how the total time of a case's answers is distributed."""
    first_tokens: list[Curve]
    """By model: how the time to the first token of a streamed answer is distributed."""
    costs: list[ModelCost]
    passes: list[PassAt]
    n_refused: int
    """How many requests were rate limited."""
    best: str
    """The model with the highest solve rate; empty if no model has one."""
    compared_with_best: list[ComparedWithBest]
    """The comparison of each other model with the best one."""
    lanes: list[LaneUse]
    limit_uses: list[LimitUse]
    limits: list[LimitLine]
    score: str
    """The score whose mean `dimensions` shows; empty if it shows the solve rate."""


def read_figures(run_dir: Path, manifest: Manifest) -> Figures:
    """Read the figures of a run that has tables.

    Raises:
        ConfigError: A table is missing or damaged.
    """
    with unusable():
        return _figures(run_dir, manifest)


def _figures(run_dir: Path, manifest: Manifest) -> Figures:
    # The plan and the tables are large, so keep only one of them in memory at a time.
    planned = read_cases(run_dir)
    clusters = {case.case_id: case.cluster for case in planned}
    cells = cells_of(planned)
    names = Uses(read_tables(run_dir), planned).dimensions(manifest.summary_by)
    tests = shown_tests(case.test for case in planned)
    questions = questions_of(planned) if len({case.model for case in planned}) > 1 else {}
    suites = sorted({case.suite for case in planned})
    planned.clear()
    columns = (*_TEXTS, *_TIMES, *_COUNTS, *LANE, *(["cost"] if manifest.prices else []))
    # The results of earlier versions have no reasons and no values.
    results = read_columns(run_dir, "results", columns, beginning=(*_FACTS, "reason", "value"))
    results = results.take(np.argsort(places(results["outcome"], _ORDER), kind="stable"))
    errors = [results[one] for one in ("error", "reason") if one in results.column_names]
    case_ids = results["case_id"].to_pylist()
    rows = [
        CaseMeasure(case_id, outcome, cells.get(case_id, ""), clusters.get(case_id))
        for case_id, outcome in zip(case_ids, results["outcome"].to_pylist(), strict=True)
    ]
    models = sorted(results["model"].unique().to_pylist())
    shown = dict(zip(models, labels(models), strict=True))
    model_at = places(results["model"], models)
    by_model = {
        model: [rows[at] for at in own]
        for model, own in zip(models, grouped(model_at, len(models)), strict=True)
    }
    rated = {
        model: those
        for model, own in by_model.items()
        if (those := [row for row in own if row.outcome in RATED])
    }
    best, besides = compare_with_best(rated, questions, shown) if rated else ("", [])
    del cells, clusters, questions
    params = _facts(results)
    names += [name for name in params if name.startswith(LABEL)]
    compared = {name: params[name] for name in names if name in params}
    if TEST in names and TEST not in compared:
        named = [tests.get(function_of(one)) for one in results["nodeid"].to_pylist()]
        compared = {TEST: pa.chunked_array([pa.array(named, pa.string())]), **compared}
    values = compared_values((name, one.unique().to_pylist()) for name, one in compared.items())
    graded_at = np.where(mask(results["outcome"], GRADED), model_at, -1)
    score, scored = ("", None) if rated else _first_score(run_dir, results["case_id"])
    is_in = mask(results["outcome"], RATED) if scored is None else ~np.isnan(scored)
    in_square = np.where(is_in, graded_at, -1)
    at = {
        name: places(compared[name], those) if name else np.zeros(len(rows), np.int64)
        for name, those in values.items()
    }
    square = partial(_square, rows, scored)
    dimensions = [
        _dimension(name, those, square, (in_square, at[name]), len(models))
        for name, those in values.items()
    ]
    attempts = read_columns(run_dir, "attempts", _ATTEMPTS)
    case_of = places(attempts["case_id"], results["case_id"])
    line_s, parts = case_times(results, attempts, case_of)
    money_of = partial(money, currency=manifest.currency)
    tokens = [np.nan_to_num(floats(results[name])) for name in ("tokens_in", "tokens_out")]
    costs = results["cost"].to_pylist() if manifest.prices else [None] * len(rows)
    cases = {
        "case_id": case_ids,
        "name": texts(results["nodeid"], _LONGEST_NAME),
        "model": model_at.tolist(),
        "outcome": coded(results["outcome"], _LONGEST_NAME),
        "kind": coded(results["kind"], _LONGEST_NAME),
        "error": coded(pc.coalesce(*errors), _LONGEST_ERROR),
        "duration_s": results["duration_s"].to_pylist(),
        "n_attempts": np.nan_to_num(floats(results["n_attempts"])).astype(int).tolist(),
        "tokens": (tokens[0] + tokens[1]).astype(int).tolist(),
        "cost": [None if one is None else money_of(one) for one in costs],
        "lane": _stripped(coded(lane_names(results), _LONGEST_NAME)),
        "line_s": line_s,
    }
    answers_s = floats(results["service_s"])
    first_s = floats(attempts["t_first_token_s"]) - floats(attempts["t_send_s"])
    # Leave out requests to roles, because a role uses a different model than its case.
    own_ok = mask(attempts["outcome"], ["ok"]) & mask(attempts["role"], [""])
    # The appended -1 is for requests whose case is not in the results.
    model_of = np.where(own_ok & ~np.isnan(first_s), np.append(model_at, -1)[case_of], -1)
    changes = read_rows(run_dir, "limits", _LIMITS) if _has(run_dir, "limits") else []
    pauses = read_rows(run_dir, "pauses", _PAUSES) if _has(run_dir, "pauses") else []
    sent = requests_sent(attempts)
    return Figures(
        suites,
        cases,
        {visible(name): coded(own, _LONGEST_PARAM) for name, own in params.items()},
        [[one if one >= 0 else None for one in own.tolist()] for own in at.values()],
        parts,
        list(shown.values()),
        dimensions,
        _curves(np.where(answers_s > 0, graded_at, -1), answers_s, shown),
        _curves(model_of, first_s, shown),
        model_costs(results, model_at, shown) if manifest.prices and rated else [],
        passes(by_model, shown),
        n_refused(attempts),
        best,
        besides,
        lane_uses(sent, pauses, manifest),
        limit_uses(sent, manifest),
        limit_lines(changes, sent.start_s),
        score,
    )


def _first_score(run_dir: Path, case_ids: Column) -> tuple[str, Floats | None]:
    """If the run has scores, return the name of the first one, and its values for these cases."""
    scores = read_columns(run_dir, "results", ("case_id",), beginning=_SCORE)
    for name in scores.column_names[1:2]:
        own = floats(scores[name])[places(case_ids, scores["case_id"])]
        return name.removeprefix(_SCORE), own
    return "", None


def _facts(results: Column) -> dict[str, Column]:
    """Return parameters, metadata and labels by name, and the values of episodes, if any."""
    names = [one for one in results.column_names if one.startswith(_FACTS)]
    found = {one.removeprefix(_PARAM): results[one] for one in names}
    if "value" in results.column_names and results["value"].null_count < len(results):
        found.setdefault("value", results["value"])
    return found


def _stripped(lanes: Coded) -> Coded:
    """Make a lane's name empty if all its parts are empty. The case then sent nothing."""
    return Coded([one.strip("/") for one in lanes.texts], lanes.at)


def compared_values(found: Iterable[tuple[str, Iterable[Scalar]]]) -> dict[str, list[Scalar]]:
    """Return the sorted values of each dimension that has 2 to `MOST_VALUES` values.

    The first entry stands for all cases as one dimension, with an empty name and one value.

    Args:
        found: The name of each dimension, and the values that it has in the cases.
    """
    values: dict[str, list[Scalar]] = {"": [""]}
    for name, own in found:
        distinct = {str(value): value for value in own if value is not None}
        if name and 1 < len(distinct) <= MOST_VALUES:
            # All values of a column have the same type.
            values[name] = [*sorted(distinct.values(), key=lambda one: (str(type(one)), one))]
    return values


def labels(values: Iterable[Scalar]) -> list[str]:
    """Return the texts that the page shows for values: short, and no two of them equal."""
    seen: Counter[str] = Counter()
    shown = []
    for value in values:
        label = one_line(str(value)) or '""'
        if len(label) > _LONGEST_LABEL:
            label = f"{label[:_LONGEST_LABEL]}..."
        seen[label] += 1
        shown.append(f"{label} ({seen[label]})" if seen[label] > 1 else label)
    return shown


def _dimension(
    name: str,
    values: list[Scalar],
    square: Callable[[Numbers], HeatmapCell],
    at: tuple[Numbers, Numbers],
    n_models: int,
) -> Dimension:
    """Make a dimension; `at` contains, for each row, the indexes of its model and of its value."""
    n, (model_at, value_at) = len(values), at
    place = np.where((model_at >= 0) & (value_at >= 0), model_at * n + value_at, -1)
    squares = [*map(square, grouped(place, n_models * n))]
    by_model = [squares[at : at + n] for at in range(0, len(squares), n)]
    return Dimension(visible(name), labels(values) if name else [""], by_model)


def _square(rows: list[CaseMeasure], scored: Floats | None, at: Numbers) -> HeatmapCell:
    those = [rows[number] for number in at]
    if scored is not None and those:
        own, least, most = scored[at].tolist(), float(np.nanmin(scored)), float(np.nanmax(scored))
        low, high = mean_interval_of(those, own).known
        mean = mean_of(own)
        place = (mean - least) / (most - least) if least < most else 0.5
        return HeatmapCell(len(those), 0, 0, low, high, mean, place)
    hits = [row.outcome == "solved" for row in those]
    share = share_of(those, hits)
    low, high = (share.low, share.high) if share is not None else (None, None)
    n_partial = sum(row.outcome == "partial" for row in those)
    return HeatmapCell(len(those), sum(hits), n_partial, low, high)


def _curves(model_at: Numbers, seconds: Floats, shown: Mapping[str, str]) -> list[Curve]:
    """Return a curve for each model that has rows. Rows with -1 in `model_at` are left out."""
    curves = []
    for model, own in zip(shown.values(), grouped(model_at, len(shown)), strict=True):
        if len(own):
            found = np.sort(seconds[own]).tolist()
            p50_s, p95_s = quantile(found, 0.5), quantile(found, 0.95)
            curves.append(Curve(model, len(found), found[0], p50_s, p95_s, found[-1]))
    return curves


def _has(run_dir: Path, table: str) -> bool:
    """Whether a table exists; `limits` and `pauses` are not written if they have no rows."""
    return any((run_dir / f"{table}.{kind}").exists() for kind in ("parquet", "jsonl"))
