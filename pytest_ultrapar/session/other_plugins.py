"""Show cases to other plugins, and in their files, as pytest's own properties and outcomes.

Other plugins know only passed, failed and skipped tests, and expected failures. A wrong answer must
not fail the session and must not be counted as passed. It is therefore shown as an expected
failure, as with `xfail`. The tables of the run contain both the measurement and pytest's own
result, unchanged.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.money import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pytest

    from pytest_ultrapar.records import Attempt, Outcome
    from pytest_ultrapar.store.cost import Prices

PREFIX = "ultrapar."
"""The beginning of every property's name."""
_EXPECTED = "ultrapar_expected"
"""A report has this attribute if this plugin, not a mark, shows it as an expected failure."""
_PASSED: dict[str, str] = {
    "solved": "passed",
    "partial": "xfailed",
    "unsolved": "xfailed",
    "scored": "passed",
    "infra": "skipped",
}
"""pytest's word for each outcome that is not a failure."""
Property = tuple[str, str | float]


class CaseProperties:
    """Makes the properties of cases, for junit files and other readers of `user_properties`.

    Args:
        directory: The run's directory; its manifest is read when the first case ends.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(
        self,
        *,
        case_id: str,
        model: str,
        outcome: Outcome,
        kind: str | None,
        scores: Mapping[str, float] = MappingProxyType({}),
        labels: Mapping[str, str] = MappingProxyType({}),
        attempts: Iterable[Attempt] = (),
    ) -> list[Property]:
        """The properties of a case, named as in `results`; null values are left out.

        Args:
            case_id: The id of the case.
            model: The model's name in the pool.
            outcome: The measured outcome.
            kind: The kind of the outcome, if any.
            scores: Scores by name.
            labels: Labels by name.
            attempts: The episode's attempts with the case's own model.
        """
        run, prices, currency = self._of_run
        named: dict[str, str | float | None] = {
            "case": case_id,
            "model": model,
            "outcome": outcome,
            "kind": kind,
            **{f"label.{name}": text for name, text in labels.items()},
            **{f"score.{name}": float(value) for name, value in scores.items()},
        }
        units = None if prices is None else prices.of_all(attempts)
        if units is not None:
            named |= {"cost": amount_of(units), "currency": currency}
        own = [(PREFIX + name, value) for name, value in named.items() if value is not None]
        return [*run, *own]

    @cached_property
    def _of_run(self) -> tuple[list[Property], Prices | None, str]:
        """The properties that all cases in the run share; then the run's prices and currency."""
        # Imported late, so that a process without cases stays light.
        from pytest_ultrapar.store.cost import Prices  # noqa: PLC0415
        from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415

        try:
            manifest = read_manifest(self._directory)
        except ResultsError:
            return [], None, ""
        prices = Prices(manifest) if manifest.prices else None
        return [(f"{PREFIX}run", manifest.run_id)], prices, manifest.currency


def set_properties(found: list[tuple[str, object]], new: Iterable[Property]) -> None:
    """Set a case's properties. Those from an earlier execution of its test are removed."""
    found[:] = [one for one in found if not one[0].startswith(PREFIX)]
    found.extend(new)


def show_as_expected(
    report: pytest.TestReport, outcome: Outcome, kind: str | None, scores: Mapping[str, float]
) -> None:
    """Show other plugins a wrong answer as an expected failure; leave a failed report unchanged."""
    if outcome not in {"partial", "unsolved"} or report.failed or hasattr(report, "wasxfail"):
        return
    shown = ", ".join(f"{name} {value:g}" for name, value in scores.items())
    named = f"{outcome}/{kind}" if kind else outcome
    report.outcome = "skipped"
    report.wasxfail = f"{named} ({shown})" if shown else named
    setattr(report, _EXPECTED, True)


def is_shown_as_expected(report: pytest.TestReport) -> bool:
    """Whether `show_as_expected` changed this report, and no plugin has changed it since then."""
    return hasattr(report, _EXPECTED) and report.skipped and hasattr(report, "wasxfail")


def note_last_failed(config: pytest.Config, report: pytest.TestReport, outcome: str | None) -> None:
    """Make `--lf` and `--ff` rerun cases that are `partial`, `unsolved` or `infra`."""
    last_failed = config.pluginmanager.getplugin("lfplugin")
    if last_failed is None or not (is_shown_as_expected(report) or outcome == "infra"):
        return
    seen = copy(report)
    seen.outcome = "failed"
    last_failed.pytest_runtest_logreport(seen)


def use_words_of_pytest(json_report: dict[str, Any]) -> None:
    """Replace this plugin's outcomes in a pytest-json-report file with pytest's own words.

    pytest-json-report writes the outcomes that pytest's terminal shows, and those come from this
    plugin.
    """
    for test in json_report.get("tests", ()):
        test["outcome"] = _PASSED.get(test.get("outcome"), test.get("outcome"))
    summary = json_report.get("summary", {})
    for word, known in _PASSED.items():
        if word in summary:
            summary[known] = summary.get(known, 0) + summary.pop(word)
