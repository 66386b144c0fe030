"""Parse gate rules (`metric[filter=value] >= bound`), and define the metrics in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import msgspec

from pytest_ultrapar.analysis.repetitions import MAJORITY, repetitions_of
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import did_you_mean
from pytest_ultrapar.records import LABEL
from pytest_ultrapar.report.text import duration, rate, times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.records import Case


Unit = Literal["per second", "seconds", "share", "factor", "number", "money", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that rules can name.

    Attributes:
        name: The metric's name in rules. `score.NAME` stands for any score.
        says: A description of the metric for the help text.
        filters: The names of the filters that are allowed. None allows all filters. An empty tuple
            allows no filter, because the metric is about the whole run.
        paired: Whether the metric needs a baseline, no matter which form the bound has.
        estimated: Whether the metric has an interval, in one run or in a comparison. Counts, such
            as coverage, have no interval.
        of_speed: Whether the metric measures the speed of the run, so that a slow client changes
            it.
    """

    name: str
    unit: Unit
    says: str
    filters: tuple[str, ...] | None = None
    paired: bool = False
    estimated: bool = True
    of_speed: bool = False


SCORE = "score."
FIGURE = "figure."
PASS_AT, PASS_ALL = "pass@", "pass^"
POINT = ".point"
"""If the name of a metric ends with this, the figure itself is compared with the bound, and its
interval is ignored.
"""
SAME_ANSWERS = "same_answers"
COVERAGE = "coverage"
KEPT = "kept"
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
QUANTILES = {f"latency.{name}": share for name, share in _QUANTILES.items()}
METRICS = (
    Metric(
        "throughput", "per second", "cases per second over the makespan", filters=(), of_speed=True
    ),
    Metric(
        "makespan",
        "seconds",
        "time from the first request to the end of the last episode",
        filters=(),
        of_speed=True,
    ),
    Metric(
        "efficiency",
        "share",
        "lower bound on the makespan, divided by the makespan",
        filters=(),
        estimated=False,
        of_speed=True,
    ),
    Metric(
        "speedup",
        "factor",
        "serial time / makespan, for all cases, a model or a suite. ultrapar bench and"
        " --ultrapar-baseline measure the speed-up. Otherwise it is an estimate, which rises if the"
        " provider gets slower, so it does not show regressions",
        filters=("model", "suite"),
        of_speed=True,
    ),
    Metric("latency.mean", "seconds", "mean episode time, from first lease to end", of_speed=True),
    *(
        Metric(
            name, "seconds", f"{share * 100:.0f}th percentile of the episode time", of_speed=True
        )
        for name, share in QUANTILES.items()
    ),
    Metric(
        "service",
        "seconds",
        "mean time of an episode without its waits for limits; a relative change is the "
        "geometric mean of new time / baseline time over the common cases",
        of_speed=True,
    ),
    Metric("tokens_in", "number", "mean number of prompt tokens per episode"),
    Metric("tokens_out", "number", "mean number of completion tokens per episode"),
    Metric("cost", "money", "mean cost per episode, in the currency of the run"),
    Metric(COVERAGE, "share", "graded / planned cases, excluding skipped ones", estimated=False),
    Metric(
        KEPT,
        "share",
        "share of the baseline's cases that are also in the run; a case that a run skipped counts "
        "as missing from that run",
        filters=(),
        paired=True,
        estimated=False,
    ),
    Metric("solved_rate", "share", "solved / graded cases, excluding ones graded by scores alone"),
    Metric(
        f"{PASS_AT}K",
        "share",
        "probability that at least one of K repetitions is solved (for K = 3: pass@3); mean over "
        "cells (a test with its parameters and model) with K graded repetitions or more",
    ),
    Metric(f"{PASS_ALL}K", "share", "as pass@K, but all K repetitions are solved (K = 3: pass^3)"),
    Metric(
        MAJORITY,
        "share",
        "share of cells in which more than half of the graded repetitions are solved, excluding "
        "cells in which half of the repetitions or fewer were graded",
    ),
    Metric(f"{SCORE}NAME", "number", "mean of one of the suite's scores over graded cases"),
    Metric(
        f"{FIGURE}NAME",
        "number",
        "a figure that the suite computes from all results (hook pytest_ultrapar_figures)",
        filters=(),
    ),
    Metric("changed", "share", "share of cases whose outcome changed", paired=True),
    Metric(
        SAME_ANSWERS,
        "none",
        "solve rate and scores equal the baseline's, for all models together and for each model",
        paired=True,
        estimated=False,
    ),
)


def find_metric(name: str) -> Metric | None:
    """Find the metric with this name.

    Scores and figures may have any name. The k in pass@k and pass^k may be any whole number from 1.
    """
    for prefix in (SCORE, FIGURE):
        if name.startswith(prefix) and len(name) > len(prefix):
            name = f"{prefix}NAME"
    if name.startswith((PASS_AT, PASS_ALL)):
        if repetitions_of(name) is None:
            return None
        general = f"{name[: len(PASS_AT)]}K"
        return next(replace(metric, name=name) for metric in METRICS if metric.name == general)
    return next((metric for metric in METRICS if metric.name == name), None)


Side = Literal[">=", "<=", ""]
Form = Literal["absolute", "difference", "relative", "none"]
"""To which figure the bound applies: the run's figure, its difference from the baseline's figure,
or that difference as a percentage of the baseline's figure. `none` means that there is no bound."""
GRAMMAR = """\
A rule is METRIC[FILTER=VALUE,...] >= BOUND, or the same with <=. Spaces do not matter. Quote the
rule, because [, > and < are special in the shell. The form of the bound says what is compared:

    solved_rate>=0.7             without a sign: the run's own figure
    score.workflow>=-0.05        with a sign: the difference from the baseline's figure
    throughput>=-10%             with a sign and %: that difference as % of the baseline's

Two more forms:

    same_answers                 no bound
    solved_rate.point>=0.7       with .point: the figure itself decides, without its interval

Times have a unit: latency.p95<=2.5s, latency.p95<=+300ms. A filter is model=NAME, suite=NAME or
PARAMETER=VALUE. If a value contains , or ] or begins or ends with a space, put it in double quotes.
A case must match all filters of a rule. Write values as tables show them, without wildcards.
Metrics of the whole run take no filter. speedup takes only model and suite.
Rules on the repetitions of a cell: pass@3>=0.8 (at least one of 3 is solved), pass^3>=0.5 (all 3),
majority>=0.7 (more than half). Each figure is a mean over cells. Instead of 3, write any number of
repetitions that the run has.

A rule fails only if the whole 95 % interval of the figure, or of its change, lies on the wrong side
of the bound. So choose the smallest effect that matters as the bound. If the interval contains the
bound, the rule is undecided: the run has too few cases. A rule about speed is also undecided if the
client, not the pool, limited the speed of a run. Undecided rules pass, unless you set --undecided
fail (in a run: --ultrapar-gate-undecided fail). These figures have no interval and are compared as
they are: kept, coverage, efficiency, and throughput and makespan if the bound has no sign. A rule
also fails if its figure is missing.
"""
_RULE = re.compile(
    r"(?P<metric>[^\s\[\]<>=]+)\s*(?:\[(?P<filters>.*)\])?\s*(?:(?P<side>[<>=!]+)\s*(?P<bound>.*))?"
)
_FILTER = re.compile(
    r"\s*(?P<name>[^\s=,\"]+)\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^,\"]*?))\s*(?P<end>,|$)"
)
_BOUND = re.compile(r"(?P<sign>[+-]?)(?P<number>\d+\.?\d*|\.\d+)\s*(?P<unit>[%a-z/]*)")


class UnitForm(NamedTuple):
    """How a unit is written in bounds, and how it is shown in tables.

    Attributes:
        factors: For each unit that can follow a number in a bound, the factor by which to multiply
            the number.
        example: An example of a bound, for messages.
        shown: Formats a number as text.
    """

    factors: Mapping[str, float]
    example: str
    shown: Callable[[float], str]


def _seconds(value: float) -> str:
    return duration(value) if value >= 1 else f"{value * 1000:.3g} ms"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - digits


_UNITS: dict[Unit, UnitForm] = {
    "seconds": UnitForm({"s": 1, "ms": 0.001, "min": 60}, "2.5s, 300ms or 2min", _seconds),
    "per second": UnitForm({"": 1, "/s": 1, "/min": 1 / 60, "/h": 1 / 3600}, "5 or 5/s", rate),
    "factor": UnitForm({"": 1, "x": 1}, "3 or 3x", times),
    "share": UnitForm({"": 1}, "a share such as 0.98", "{:.3f}".format),
    "number": UnitForm({"": 1}, "a number", _number),
    "money": UnitForm({"": 1}, "an amount such as 0.02", "{:.3g}".format),
}


def unit_of(metric: str) -> UnitForm:
    """Return the unit of a metric, or the unit of plain numbers if the metric is unknown."""
    found = find_metric(metric)
    return _UNITS[found.unit if found is not None else "number"]


class Rule(msgspec.Struct, frozen=True):
    """One rule.

    Attributes:
        text: The rule as the user wrote it.
        metric: The metric's name, without `.point`.
        filters: The name and the value in each filter. A case must match all filters to be
            selected.
        side: The side of the bound on which the figure must be; empty if the metric has no bound.
        bound: The bound, in cases per second, in seconds, or without a unit. A relative bound is a
            share, such as -0.1.
        form: The kind of figure or change to which the bound applies.
        confidence: The confidence of the interval that decides the rule.
        point: Whether the figure itself decides the rule, regardless of its interval.
    """

    text: str
    metric: str
    filters: tuple[tuple[str, str], ...] = ()
    side: Side = ""
    bound: float = 0.0
    form: Form = "none"
    confidence: float = 0.95
    point: bool = False

    @property
    def of_speed(self) -> bool:
        """Whether the rule is about the speed of a run."""
        metric = find_metric(self.metric)
        return metric is not None and metric.of_speed

    @property
    def needs_baseline(self) -> bool:
        """Whether the rule compares the run with a baseline."""
        metric = find_metric(self.metric)
        return self.form in {"difference", "relative"} or (metric is not None and metric.paired)


def parse_rule(text: str) -> Rule:
    """Parse the text of a rule.

    Raises:
        ConfigError: The text is not a rule, or it names an unknown metric. The message lists what
            is allowed.
    """
    plain = text.strip()
    found = _RULE.fullmatch(plain)
    if found is None:
        refuse(plain, "it must be METRIC[FILTER=VALUE,...] >= BOUND, such as throughput>=-10%")
    name = found["metric"].removesuffix(POINT)
    is_point = found["metric"] != name
    metric = find_metric(name)
    if metric is None and name.startswith((PASS_AT, PASS_ALL)):
        form = name[: len(PASS_AT)]
        refuse(plain, f"after {form}, write the number of repetitions (1 or more), as in {form}3")
    if metric is None:
        refuse(plain, f"{name} is not a metric{_nearest(name, [each.name for each in METRICS])}")
    if is_point and not metric.estimated:
        refuse(plain, f"{name} has no interval, so leave {POINT} out")
    filters = _filters(plain, found["filters"])
    if filters and metric.filters == ():
        refuse(plain, f"{name} is a figure of the whole run and takes no filter")
    if metric.filters and not {key for key, _ in filters} <= set(metric.filters):
        refuse(plain, f"{name} takes only the filters {' and '.join(metric.filters)}")
    side = found["side"] or ""
    if metric.unit == "none":
        if side:
            refuse(plain, f"{name} takes no bound")
        return Rule(plain, name, filters)
    if side not in {">=", "<="}:
        said = f"unknown comparison {side}" if side else f"{name} needs a bound"
        refuse(plain, f"{said}; write {name}>=BOUND or {name}<=BOUND")
    bound, form = _bound(plain, metric, found["bound"])
    return Rule(plain, name, filters, ">=" if side == ">=" else "<=", bound, form, point=is_point)


def _nearest(name: str, allowed: Collection[str]) -> str:
    """Return the end of a message, such as `; did you mean latency.p95? allowed: ...`."""
    meant = did_you_mean(name, allowed, cutoff=0.5) or ";"
    return f"{meant} allowed: {', '.join(allowed) or 'none'}"


def _filters(rule: str, text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    filters: dict[str, str] = {}
    at = 0
    while True:
        found = _FILTER.match(text, at)
        if found is None:
            refuse(rule, f"[{text}] must be [NAME=VALUE]; separate several filters with commas")
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        if found["name"] in filters:
            refuse(rule, f"the filter {found['name']} is given twice")
        filters[found["name"]] = value
        at = found.end()
        if not found["end"]:
            return tuple(filters.items())


def _bound(rule: str, metric: Metric, text: str) -> tuple[float, Form]:
    found = _BOUND.fullmatch(text.strip())
    factors = _UNITS[metric.unit].factors
    if found is None:
        refuse(rule, f"the bound {text.strip()!r} is not a number; {_wanted(metric)}")
    number, unit = float(found["sign"] + found["number"]), found["unit"]
    if (unit == "%" or found["sign"]) and metric.paired:
        refuse(rule, f"{metric.name} is a comparison: omit the sign and %; {_wanted(metric)}")
    if unit == "%" and not found["sign"]:
        plain = text.strip()
        refuse(
            rule,
            f"{plain} needs a sign, because a bound in % is relative to the baseline: write "
            f"+{plain} or -{plain}; {_wanted(metric)}",
        )
    if unit == "%":
        return number / 100, "relative"
    if unit not in factors:
        said = f"the unit {unit} does not fit {metric.name}" if unit else "the bound has no unit"
        refuse(rule, f"{said}; {_wanted(metric)}")
    if metric.unit == "share" and abs(number) > 1:
        refuse(rule, f"{metric.name} is a share from 0 to 1 (got {text.strip()})")
    return number * factors[unit], "difference" if found["sign"] else "absolute"


def _wanted(metric: Metric) -> str:
    return f"write the bound of {metric.name} as {_UNITS[metric.unit].example}" + (
        "" if metric.paired else "; with + or -, it is a difference from the baseline"
    )


def refuse(rule: str, why: str) -> NoReturn:
    """Refuse a rule, and say why.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(f"gate rule {rule!r}: {why}")


_ATTRIBUTES = ("model", "suite", "repeat")


def selected(rule: Rule, cases: Iterable[Case]) -> set[str]:
    """Return the ids of the cases that match all filters of a rule."""
    return {
        case.case_id
        for case in cases
        if all(case.value_of(name) == text for name, text in rule.filters)
    }


def check_filters(rules: Iterable[Rule], cases: Sequence[Case]) -> None:
    """Check that each filter in the rules matches at least one case.

    Args:
        rules: The rules.
        cases: The planned cases of the judged run.

    Raises:
        ConfigError: A model, suite, parameter or value is unknown, or no case matches all filters
            in a rule. The message suggests the nearest name.
    """
    for rule in rules:
        planned = [one for one in rule.filters if not one[0].startswith(LABEL)]
        for name, text in planned:
            if why := filter_fault(name, text, cases):
                refuse(rule.text, why)
        # Do not check labels here, because they are known only after cases are graded.
        if planned and planned == [*rule.filters] and not selected(rule, cases):
            refuse(rule.text, "no case matches all of these filters")


def check_names(rules: Iterable[Rule], summary: RunSummary, *, run: str) -> None:
    """Check that a run has all scores and figures that the rules name.

    Args:
        rules: The rules.
        summary: The run's summary.
        run: The name of the run in messages.

    Raises:
        ConfigError: A score or figure is missing. The message suggests the nearest name.
    """
    names = {SCORE: [*summary.statistics.scores], FIGURE: [one.name for one in summary.figures]}
    for rule, (prefix, known) in product(rules, names.items()):
        name = rule.metric.removeprefix(prefix)
        if rule.metric.startswith(prefix) and name not in known:
            what = f"{prefix[:-1]} {name}{_nearest(name, sorted(known))}"
            refuse(rule.text, f"{run} has no {what}")


def check_baseline(rules: Iterable[Rule]) -> None:
    """Check that no rule needs a baseline.

    Raises:
        ConfigError: A rule needs a baseline.
    """
    for rule in rules:
        if rule.needs_baseline:
            refuse(
                rule.text,
                "it needs a baseline: specify one (--baseline RUN; in a run: "
                "--ultrapar-gate-baseline RUN), or write a bound with neither a sign nor %, if "
                "the metric allows that",
            )


def filter_fault(name: str, text: str, cases: Sequence[Case]) -> str:
    """Return why no case matches a filter, and the nearest name; empty if a case matches."""
    known = [*_ATTRIBUTES, *sorted({key for case in cases for key in case.facts})]
    if name not in known:
        what = "label" if name.startswith(LABEL) else "parameter"
        return f"{name} is not a {what} of any case{_nearest(name, known)}"
    values = dict.fromkeys(case.value_of(name) for case in cases)
    if text in values:
        return ""
    pattern = " (filters take no wildcards)" if set(text) & set("*?") else ""
    return f"no case has {name} {text!r}{pattern}{_nearest(text, [*filter(None, values)])}"


DEFAULT_RULES = ("throughput>=-7%", "service<=+7%", "kept>=0.98", "coverage>=-0.02", "same_answers")
"""The default rules, in addition to `DEFAULT_RULE_OF_MODEL` for each model.

On a logarithmic scale, 7 % is halfway between no change and a server that takes 15 % longer. On two
cores shared with other load, runs of the same code differed by up to 5 %
(docs/explanation/comparing.md)."""
DEFAULT_RULE_OF_MODEL = "solved_rate[model=...]>=-0.02"
"""The default rule for each model. The intervals of these rules hold jointly for all models."""
