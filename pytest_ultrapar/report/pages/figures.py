"""What the page of a run shows, read from its tables; pure data, which a test can compute anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.analysis.measures import Repeated
from pytest_ultrapar.analysis.repetitions import cells_of, questions_of, share_of
from pytest_ultrapar.analysis.statistics import quantile
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.pages.case_times import COLUMNS as TIMES
from pytest_ultrapar.report.pages.case_times import Held, case_times, held_up
from pytest_ultrapar.report.pages.lanes import (
    LaneUse,
    LimitLine,
    LimitUse,
    lane_uses,
    limit_lines,
    limit_uses,
    n_refused,
)
from pytest_ultrapar.report.pages.models import (
    Beside,
    ModelCost,
    PassAt,
    beside_best,
    model_costs,
    passes,
)
from pytest_ultrapar.report.text import one_line, shortened, visible
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.records import Scalar
    from pytest_ultrapar.store.manifest import Manifest

MOST_VALUES = 40
"""Values of a dimension beyond which a table of it says nothing."""
QUANTILES = 50
_LONGEST_LABEL = 60
_LONGEST_NAME = 300
_LONGEST_PARAM = 500
_LONGEST_ERROR = 4_000
_PARAM = "param."
_GRADED = frozenset({"solved", "partial", "unsolved"})
_ORDER = ("error", "infra", "unsolved", "partial", "skipped", "solved")
"""Outcomes, those first that somebody wants to know of."""
_RESULTS = (
    "case_id",
    "nodeid",
    "model",
    "outcome",
    "kind",
    "error",
    "n_attempts",
    "n_turns",
    "tokens_in",
    "tokens_out",
    "queue_wait_s",
    "rate_wait_s",
    "backoff_s",
    "service_s",
    "duration_s",
    "provider",
    "instance",
    "key",
    "cost",
)
_ATTEMPTS = (
    "case_id",
    "provider",
    "instance",
    "key",
    "t_send_s",
    "t_first_token_s",
    "t_end_s",
    "outcome",
    "tokens_in",
    "tokens_out",
    "role",
)
_LIMITS = ("limit", "t_s", "workers", "reason")
_PAUSES = ("provider", "instance", "key", "cause", "t_s", "t_end_s")


class CaseLine(msgspec.Struct, frozen=True):
    """A case as the list of cases has it.

    Attributes:
        model: Which of `Figures.models`.
        at: For each of `Figures.dimensions`, which of its values; None where it has none.
        duration_s: From its first lease to its end.
        line_s: In line before that.
        parts: Where `duration_s` went, their sum.
    """

    case_id: str
    name: str
    model: int
    outcome: str
    kind: str
    error: str
    params: dict[str, str]
    at: list[int | None]
    duration_s: float | None
    n_attempts: int
    tokens: int
    cost: str | None
    lane: str
    line_s: float
    parts: dict[str, float]


class Square(msgspec.Struct, frozen=True):
    """The graded cases of one model and one value.

    Attributes:
        low: Of the interval of the solved share at 95 %; None where nothing was graded.
    """

    n: int
    n_solved: int
    n_partial: int
    low: float | None
    high: float | None


class Dimension(msgspec.Struct, frozen=True):
    """Models by the values of one parameter.

    Attributes:
        name: The parameter; empty where all cases are one value.
        values: As they are shown, no two alike.
        squares: For each model one for each value.
    """

    name: str
    values: list[str]
    squares: list[list[Square]]


class Curve(msgspec.Struct, frozen=True):
    """How a time is distributed.

    Attributes:
        seconds: Quantiles at equal steps from 0 to 1.
        p95_s: As the summary computes it, which may lie between two values.
    """

    model: str
    n: int
    seconds: list[float]
    p95_s: float


class Figures(msgspec.Struct, frozen=True):
    """All that the page shows beside what the run says of itself."""

    cases: list[CaseLine]
    models: list[str]
    """As they are shown, no two alike."""
    dimensions: list[Dimension]
    curves: list[Curve]
    """How long a case's answers took, all of them together."""
    first_tokens: list[Curve]
    """How long requests that were streamed waited for their first token."""
    costs: list[ModelCost]
    passes: list[PassAt]
    n_refused: int
    """Requests that were refused for rate limits."""
    best: str
    """The model that solved the largest share of its graded cases; empty if none was graded."""
    beside_best: list[Beside]
    """The other models beside it."""
    lanes: list[LaneUse]
    limit_uses: list[LimitUse]
    limits: list[LimitLine]


def read_figures(run_dir: Path, manifest: Manifest) -> Figures:
    """The figures of a run whose tables are made.

    Raises:
        ConfigError: A table is missing or damaged.
    """
    try:
        return _figures(run_dir, manifest)
    except ResultsError as error:
        raise ConfigError(str(error)) from error


def _figures(run_dir: Path, manifest: Manifest) -> Figures:
    # Plans and tables are large, and needed one after the other.
    planned = read_cases(run_dir)
    clusters = {case.case_id: case.cluster for case in planned}
    cells, questions = cells_of(planned), questions_of(planned)
    planned.clear()
    held = held_up(read_rows(run_dir, "attempts", TIMES))
    columns = tuple(one for one in _RESULTS if one != "cost" or manifest.prices)
    results = read_rows(run_dir, "results", columns, beginning=_PARAM)
    results.sort(key=lambda row: _ORDER.index(row["outcome"]))
    rows = {
        row["case_id"]: Repeated(
            row["case_id"],
            row["outcome"],
            cells.get(row["case_id"], ""),
            clusters.get(row["case_id"]),
        )
        for row in results
    }
    models = sorted({row["model"] for row in results})
    shown = dict(zip(models, labels(models), strict=True))
    by_model: dict[str, list[Repeated]] = defaultdict(list)
    for row in results:
        by_model[row["model"]].append(rows[row["case_id"]])
    graded = {
        model: those
        for model, own in by_model.items()
        if (those := [row for row in own if row.outcome in _GRADED])
    }
    best, besides = beside_best(graded, questions, shown) if graded else ("", [])
    questions.clear()
    values = compared_values(map(_params, results))
    places = {name: {value: at for at, value in enumerate(those)} for name, those in values.items()}
    money_of = partial(money, currency=manifest.currency)
    dimensions = [_dimension(name, those, models, results, rows) for name, those in values.items()]
    answers = _curves(_answers(results), shown)
    costs = model_costs(results, shown) if manifest.prices else []
    model_of = {row["case_id"]: row["model"] for row in results}
    number = {model: at for at, model in enumerate(models)}
    # Rows are let go one by one, before those of attempts come: 100,000 of each fit 500 MB.
    results.reverse()
    lines = []
    while results:
        row = results.pop()
        kept_up = held.get(row["case_id"], Held())
        lines.append(_line(row, number[row["model"]], places, money_of, kept_up))
    attempts = read_rows(run_dir, "attempts", _ATTEMPTS)
    changes = read_rows(run_dir, "limits", _LIMITS) if _has(run_dir, "limits") else []
    pauses = read_rows(run_dir, "pauses", _PAUSES) if _has(run_dir, "pauses") else []
    return Figures(
        lines,
        list(shown.values()),
        dimensions,
        answers,
        _curves(_first_tokens(attempts, model_of), shown),
        costs,
        passes(by_model, shown),
        n_refused(attempts),
        best,
        besides,
        lane_uses(attempts, pauses, manifest),
        limit_uses(attempts, manifest),
        limit_lines(changes, attempts),
    )


def _line(
    row: dict[str, Any],
    model: int,
    places: Mapping[str, Mapping[Scalar, int]],
    money_of: Callable[[float], str],
    held: Held,
) -> CaseLine:
    times = case_times(row, held)
    return CaseLine(
        row["case_id"],
        shortened(row["nodeid"], _LONGEST_NAME),
        model,
        row["outcome"],
        shortened(row["kind"] or "", _LONGEST_NAME),
        shortened(row["error"] or "", _LONGEST_ERROR),
        {visible(name): shortened(str(value), _LONGEST_PARAM) for name, value in _params(row)},
        [at.get(row.get(_PARAM + name, "")) for name, at in places.items()],
        row["duration_s"],
        row["n_attempts"] or 0,
        (row["tokens_in"] or 0) + (row["tokens_out"] or 0),
        None if row.get("cost") is None else money_of(row["cost"]),
        _lane(row),
        times.line_s,
        times.parts,
    )


def _lane(row: dict[str, Any]) -> str:
    return visible("/".join(row[name] or "" for name in ("provider", "instance", "key")).strip("/"))


def _params(row: dict[str, Any]) -> Iterable[tuple[str, Scalar]]:
    return (
        (name.removeprefix(_PARAM), value)
        for name, value in row.items()
        if name.startswith(_PARAM) and value is not None
    )


def compared_values(params: Iterable[Iterable[tuple[str, Scalar]]]) -> dict[str, list[Scalar]]:
    """Parameters by which models can be compared, with their values in order; last all cases.

    Args:
        params: Names and values of each case.
    """
    found: dict[str, dict[str, Scalar]] = defaultdict(dict)
    for own in params:
        for name, value in own:
            found[name][str(value)] = value
    values: dict[str, list[Scalar]] = {
        # A column's values are of one type.
        name: sorted(those.values(), key=lambda value: (str(type(value)), value))
        for name, those in found.items()
        if name and 1 < len(those) <= MOST_VALUES
    }
    return {**values, "": [""]}


def labels(values: Iterable[Scalar]) -> list[str]:
    """Values as they are shown: short, and no two alike."""
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
    models: list[str],
    results: Sequence[dict[str, Any]],
    rows: dict[str, Repeated],
) -> Dimension:
    own: dict[tuple[str, Scalar], list[Repeated]] = defaultdict(list)
    for row in results:
        if row["outcome"] in _GRADED:
            own[row["model"], row.get(_PARAM + name, "")].append(rows[row["case_id"]])
    squares = [[_square(own[model, value]) for value in values] for model in models]
    return Dimension(visible(name), labels(values) if name else [""], squares)


def _square(those: list[Repeated]) -> Square:
    hits = [row.outcome == "solved" for row in those]
    share = share_of(those, hits)
    low, high = (share.low, share.high) if share is not None else (None, None)
    n_partial = sum(row.outcome == "partial" for row in those)
    return Square(len(those), sum(hits), n_partial, low, high)


def _answers(results: Iterable[dict[str, Any]]) -> Iterable[tuple[str, float]]:
    return (
        (row["model"], row["service_s"])
        for row in results
        if row["outcome"] in _GRADED and row["service_s"]
    )


def _first_tokens(
    attempts: Iterable[dict[str, Any]], model_of: Mapping[str, str]
) -> Iterable[tuple[str, float]]:
    """Of answers by the case's own model: a role's model is another one."""
    return (
        (model_of[row["case_id"]], row["t_first_token_s"] - row["t_send_s"])
        for row in attempts
        if row["outcome"] == "ok"
        and not row["role"]
        and row["t_first_token_s"] is not None
        and row["case_id"] in model_of
    )


def _curves(times: Iterable[tuple[str, float]], shown: Mapping[str, str]) -> list[Curve]:
    by_model: dict[str, list[float]] = defaultdict(list)
    for model, seconds in times:
        by_model[model].append(seconds)
    curves = []
    for model, found in sorted(by_model.items()):
        found.sort()
        curves.append(Curve(shown[model], len(found), quantiles(found), quantile(found, 0.95)))
    return curves


def _has(run_dir: Path, table: str) -> bool:
    """Whether there is a table: none without rows, of limits estimated and of pauses."""
    return any((run_dir / f"{table}.{kind}").exists() for kind in ("parquet", "jsonl"))


def quantiles(values: Iterable[float]) -> list[float]:
    """`QUANTILES + 1` of them, from the smallest value to the largest; each is one of the values.

    Source: the inverse of the empirical distribution function.
    """
    ordered = sorted(values)
    n = len(ordered)
    return [ordered[max(0, -(-n * k // QUANTILES) - 1)] for k in range(QUANTILES + 1)]
