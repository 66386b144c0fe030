"""Figures of rules and comparisons as people read them; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.metrics import find_metric
from pytest_ultrapar.report.numbers import duration, rate, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.compare.metrics import Unit
    from pytest_ultrapar.compare.rules import Form
    from pytest_ultrapar.results.measured_run import MeasuredRun
    from pytest_ultrapar.results.run_speeds import RunSpeeds
    from pytest_ultrapar.results.statistics import Basis

NONE = "-"

SERVICE_MEANS = (
    "service: time without waiting for limits; geometric means, so that its change is the typical"
    " ratio of each case's two times"
)
_SERIAL_TIMES: dict[Basis, str] = {
    "estimated": "serial times estimated from its own service times, usually too high",
    "sampled": "its serial sample",
    "full": "a {over} run of the same cases",
}


def speedup_notes(runs: Mapping[str, MeasuredRun | RunSpeeds]) -> Iterator[str]:
    """What the speed-ups of runs stand on, by their names in sentences; nothing without one."""
    bases = {name: run.basis for name, run in runs.items()}
    for name, basis in bases.items():
        if basis is not None:
            times = _SERIAL_TIMES[basis].format(over=runs[name].over)
            yield f"the speed-up of {name} stands on {times}"
    if "estimated" in bases.values():
        yield (
            "an estimated speed-up is no measure of a regression: it rises where the provider gets"
            " slower; judge by throughput and service"
        )


def figure_text(metric: str, value: float | None, form: Form = "absolute") -> str:
    """A figure, its difference (`+0.3 s`) or its relative change (`-13.2 %`)."""
    if value is None:
        return NONE
    if form == "relative":
        return f"{_no_minus_zero(value * 100, 1):+.1f} %"
    if form == "difference":
        return ("-" if value < 0 else "+") + _plain(_unit(metric), abs(value))
    return _plain(_unit(metric), value)


def interval_text(metric: str, low: float | None, high: float | None, form: Form) -> str:
    """`-14.1 to -12.3 %`; `from 2.31 s` where nothing is known above."""
    texts = [figure_text(metric, bound, form) for bound in (low, high)]
    if low is None and high is None:
        return "unknown"
    if low is None:
        return f"up to {texts[1]}"
    if high is None:
        return f"from {texts[0]}"
    first, _, unit = texts[0].partition(" ")
    same_unit = unit and texts[1].endswith(f" {unit}") and texts[1].count(" ") == 1
    return f"{first if same_unit else texts[0]} to {texts[1]}"


def _unit(metric: str) -> Unit:
    found = find_metric(metric)
    return found.unit if found is not None else "number"


def _plain(unit: Unit, value: float) -> str:
    match unit:
        case "seconds":
            return duration(value) if value >= 1 else f"{value * 1000:.3g} ms"
        case "per second":
            return rate(value)
        case "factor":
            return times(value)
        case "share":
            return f"{value:.3f}"
        case _:
            return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - digits


def _no_minus_zero(value: float, digits: int) -> float:
    return round(value, digits) + 0.0
