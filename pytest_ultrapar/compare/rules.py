"""Rules as text, `metric[filter=value] >= bound`, and the figures that they can speak of."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import msgspec

from pytest_ultrapar.analysis.repetitions import MAJORITY, repetitions_of
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.fields import did_you_mean
from pytest_ultrapar.records import LABEL
from pytest_ultrapar.report.text import duration, rate, times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.records import Case


Unit = Literal["per second", "seconds", "share", "factor", "number", "money", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run.

    Attributes:
        name: As in rules; `score.NAME` stands for any score.
        filters: The names that its filters may have; None for any, none where it is of the run as a
            whole.
        paired: Only there with a baseline, whatever the bound.
        estimated: Whether it has an interval, in one run or beside a baseline; others are counts.
        of_speed: Whether it says how fast the run was, so that a slow client changes it.
        says: What it is, for people.
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
"""After a metric's name: the figure itself decides, whatever its interval."""
SAME_ANSWERS = "same_answers"
COVERAGE = "coverage"
KEPT = "kept"
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
QUANTILES = {f"latency.{name}": share for name, share in _QUANTILES.items()}
METRICS = (
    Metric(
        "throughput", "per second", "cases per second of the makespan", filters=(), of_speed=True
    ),
    Metric(
        "makespan",
        "seconds",
        "first send to the end of the last episode",
        filters=(),
        of_speed=True,
    ),
    Metric(
        "efficiency",
        "share",
        "lower bound of the makespan / makespan",
        filters=(),
        estimated=False,
        of_speed=True,
    ),
    Metric(
        "speedup",
        "factor",
        "serial time / makespan, of all cases, a model or a suite: measured of what ultrapar bench"
        " or --ultrapar-baseline made; else estimated, which rises with a slower provider and is no"
        " measure of a regression",
        filters=("model", "suite"),
        of_speed=True,
    ),
    Metric("latency.mean", "seconds", "mean time of an episode, first lease to end", of_speed=True),
    *(
        Metric(
            name, "seconds", f"{share * 100:.0f} % of the episodes take no longer", of_speed=True
        )
        for name, share in QUANTILES.items()
    ),
    Metric(
        "service",
        "seconds",
        "mean time of an episode without waiting for limits; relative to the baseline the typical"
        " ratio of each case's two times",
        of_speed=True,
    ),
    Metric("tokens_in", "number", "mean prompt tokens of an episode"),
    Metric("tokens_out", "number", "mean completion tokens of an episode"),
    Metric("cost", "money", "mean cost of an episode, in the currency of its run"),
    Metric(COVERAGE, "share", "graded cases / cases that were to be measured", estimated=False),
    Metric(
        KEPT,
        "share",
        "cases of the baseline that the run has and did not skip / all that it did not skip",
        filters=(),
        paired=True,
        estimated=False,
    ),
    Metric("solved_rate", "share", "solved cases / graded cases, without those scored alone"),
    Metric(
        f"{PASS_AT}K",
        "share",
        "of K repetitions of a cell (a test with its parameters and model) one is solved: mean over"
        " cells with at least K graded repetitions, pass@3",
    ),
    Metric(f"{PASS_ALL}K", "share", "the same for all K being solved, pass^3"),
    Metric(
        MAJORITY,
        "share",
        "cells of which more than half of the graded repetitions are solved / cells of which more"
        " than half were graded",
    ),
    Metric(f"{SCORE}NAME", "number", "mean of a score of the suite over graded cases"),
    Metric(
        f"{FIGURE}NAME",
        "number",
        "a figure that the suite computes of all rows (pytest_ultrapar_figures)",
        filters=(),
    ),
    Metric("changed", "share", "cases whose outcome differs from the baseline's", paired=True),
    Metric(
        SAME_ANSWERS,
        "none",
        "solved rate and scores, of all models and of each, are those of the baseline",
        paired=True,
        estimated=False,
    ),
)


def find_metric(name: str) -> Metric | None:
    """The metric of that name; any name of a score will do, and any number of repetitions."""
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
"""Of the bound: a figure of the run, its difference to the baseline's, or that in per cent."""
GRAMMAR = """\
A rule is METRIC[FILTER=VALUE,...] >= BOUND, or with <=; spaces do not matter, but quote the rule,
since a shell reads [, > and < itself. The bound's form says what is compared:

    solved_rate>=0.7             without sign: the run's own figure
    score.workflow>=-0.05        with sign: the difference to the baseline's figure
    throughput>=-10%             with sign and %: the same in per cent of the baseline's figure
    same_answers                 no bound
    solved_rate.point>=0.7       with .point: the figure itself decides, whatever its interval

Times have a unit: latency.p95<=2.5s, latency.p95<=+300ms. A filter is model=NAME, suite=NAME or
PARAMETER=VALUE; put a value with , or ] or outer spaces in double quotes. All filters of a rule
must match; values are as tables show them, without patterns. Metrics of the whole run take no
filter, speedup takes model and suite.

Of repetitions of a cell speak pass@3>=0.8 (of 3, one is solved), pass^3>=0.5 (all 3 are) and
majority>=0.7 (more than half are), as means over cells; 3 stands for any number that the run has.

A rule fails only with confidence: when the 95 % interval of the figure, or of its change, lies
entirely beyond the bound. So the bound is the smallest effect that counts. Where the interval
contains the bound, the rule is undecided: there are too few cases to tell. So is every rule on
speed where the client itself, not the pool, limited a run. Undecided rules pass unless
--undecided fail (in a run --ultrapar-gate-undecided fail) says otherwise. Counts of the run itself
have no interval and are compared as they are: kept, coverage, efficiency, and without sign
throughput and makespan. A rule without a figure fails.
"""
_RULE = re.compile(
    r"(?P<metric>[^\s\[\]<>=]+)\s*(?:\[(?P<filters>.*)\])?\s*(?:(?P<side>[<>=!]+)\s*(?P<bound>.*))?"
)
_FILTER = re.compile(
    r"\s*(?P<name>[^\s=,\"]+)\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^,\"]*?))\s*(?P<end>,|$)"
)
_BOUND = re.compile(r"(?P<sign>[+-]?)(?P<number>\d+\.?\d*|\.\d+)\s*(?P<unit>[%a-z/]*)")


class UnitForm(NamedTuple):
    """How a unit is written in bounds and shown in tables.

    Attributes:
        factors: What a word behind a number makes of it.
        example: For messages.
        shown: A number of it as text.
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
    """That of a metric; a number's where no rule can speak of it."""
    found = find_metric(metric)
    return _UNITS[found.unit if found is not None else "number"]


class Rule(msgspec.Struct, frozen=True):
    """One rule.

    Attributes:
        text: As it was written.
        metric: Name of the metric.
        filters: Names and values that a case must have.
        side: Where the figure must be, seen from the bound; empty for a metric without bound.
        bound: In cases per second, seconds, or as it is; relative ones as a share: -0.1.
        confidence: Of the interval that decides.
        point: Whether the figure decides alone, whatever its interval.
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
        """Whether it speaks of how fast a run was."""
        metric = find_metric(self.metric)
        return metric is not None and metric.of_speed

    @property
    def needs_baseline(self) -> bool:
        """Whether it says something only beside another run."""
        metric = find_metric(self.metric)
        return self.form in {"difference", "relative"} or (metric is not None and metric.paired)


def parse_rule(text: str) -> Rule:
    """The rule that a text says.

    Raises:
        ConfigError: It is none, or names an unknown metric; the message says what is allowed.
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
        refuse(plain, f"{form} takes a whole number of repetitions from 1, such as {form}3")
    if metric is None:
        refuse(plain, f"{name} is not a metric{_nearest(name, [each.name for each in METRICS])}")
    if is_point and not metric.estimated:
        refuse(plain, f"{name} has no interval, so leave {POINT} out")
    filters = _filters(plain, found["filters"])
    if filters and metric.filters == ():
        refuse(plain, f"{name} is of the whole run and takes no filter")
    if metric.filters and not {key for key, _ in filters} <= set(metric.filters):
        refuse(plain, f"{name} takes the filters {' and '.join(metric.filters)} alone")
    side = found["side"] or ""
    if metric.unit == "none":
        if side:
            refuse(plain, f"{name} takes no bound")
        return Rule(plain, name, filters)
    if side not in {">=", "<="}:
        said = f"{side} is not known" if side else f"{name} needs a bound"
        refuse(plain, f"{said}; write {name}>=BOUND or {name}<=BOUND")
    bound, form = _bound(plain, metric, found["bound"])
    return Rule(plain, name, filters, ">=" if side == ">=" else "<=", bound, form, point=is_point)


def _nearest(name: str, allowed: Collection[str]) -> str:
    """A question and a list for a message: `; did you mean latency.p95? allowed are ...`."""
    meant = did_you_mean(name, allowed, cutoff=0.5) or ";"
    return f"{meant} allowed are {', '.join(allowed) or 'none'}"


def _filters(rule: str, text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    filters: dict[str, str] = {}
    at = 0
    while True:
        found = _FILTER.match(text, at)
        if found is None:
            refuse(rule, f"[{text}] must be [NAME=VALUE], several with commas between them")
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        if found["name"] in filters:
            refuse(rule, f"the filter {found['name']} is there twice")
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
        refuse(rule, f"{metric.name} already compares both runs; {_wanted(metric)}")
    if unit == "%" and not found["sign"]:
        plain = text.strip()
        refuse(
            rule,
            f"{plain} needs a sign, since per cent is relative to the baseline: +{plain} or"
            f" -{plain}; {_wanted(metric)}",
        )
    if unit == "%":
        return number / 100, "relative"
    if unit not in factors:
        said = f"the unit {unit} does not fit {metric.name}" if unit else "the bound has no unit"
        refuse(rule, f"{said}; {_wanted(metric)}")
    if metric.unit == "share" and abs(number) > 1:
        refuse(rule, f"{metric.name} is a share, 0 to 1 (got {text.strip()})")
    return number * factors[unit], "difference" if found["sign"] else "absolute"


def _wanted(metric: Metric) -> str:
    return f"{metric.name} is compared with {_UNITS[metric.unit].example}" + (
        "" if metric.paired else ", with + or - as a difference to the baseline"
    )


def refuse(rule: str, why: str) -> NoReturn:
    """Refuse a rule with a sentence.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(f"gate rule {rule!r}: {why}")


_ATTRIBUTES = ("model", "suite", "repeat")


def selected(rule: Rule, cases: Iterable[Case]) -> set[str]:
    """Ids of the cases that have all that the rule's filters ask for."""
    return {
        case.case_id
        for case in cases
        if all(case.value_of(name) == text for name, text in rule.filters)
    }


def check_filters(rules: Iterable[Rule], cases: Sequence[Case]) -> None:
    """Make sure that each filter names something that there is.

    Args:
        rules: The rules.
        cases: The planned cases of the run that is judged.

    Raises:
        ConfigError: A model, suite, parameter or value is unknown, or filters fit no case together;
            the nearest name is suggested.
    """
    for rule in rules:
        planned = [one for one in rule.filters if not one[0].startswith(LABEL)]
        for name, text in planned:
            if why := filter_fault(name, text, cases):
                refuse(rule.text, why)
        # What labels there are is known when cases are graded.
        if planned and planned == [*rule.filters] and not selected(rule, cases):
            refuse(rule.text, "no case matches all of these filters")


def check_names(rules: Iterable[Rule], summary: RunSummary, *, run: str) -> None:
    """Make sure that each score and figure that a rule names is one of a run's.

    Args:
        rules: The rules.
        summary: Of the run.
        run: How to call the run.

    Raises:
        ConfigError: It is not; the nearest is suggested.
    """
    names = {SCORE: [*summary.statistics.scores], FIGURE: [one.name for one in summary.figures]}
    for rule, (prefix, known) in product(rules, names.items()):
        name = rule.metric.removeprefix(prefix)
        if rule.metric.startswith(prefix) and name not in known:
            what = f"{prefix[:-1]} {name}{_nearest(name, sorted(known))}"
            refuse(rule.text, f"{run} has no {what}")


def check_baseline(rules: Iterable[Rule]) -> None:
    """Make sure that no rule needs a baseline, where there is none.

    Raises:
        ConfigError: One does.
    """
    for rule in rules:
        if rule.needs_baseline:
            refuse(
                rule.text,
                "it compares with a baseline, but there is none: name one (--baseline RUN, in a run"
                " --ultrapar-gate-baseline RUN), or write a bound without sign and % where the"
                " metric has one",
            )


def filter_fault(name: str, text: str, cases: Sequence[Case]) -> str:
    """Why no case has what a filter names, with the nearest name; empty where one has."""
    known = [*_ATTRIBUTES, *sorted({key for case in cases for key in case.facts})]
    if name not in known:
        what = "label" if name.startswith(LABEL) else "parameter"
        return f"{name} is not a {what} of a case{_nearest(name, known)}"
    values = dict.fromkeys(case.value_of(name) for case in cases)
    if text in values:
        return ""
    pattern = " (filters take no patterns)" if set(text) & set("*?") else ""
    return f"no case has {name} {text!r}{pattern}{_nearest(text, [*filter(None, values)])}"


DEFAULT_RULES = ("throughput>=-7%", "service<=+7%", "kept>=0.98", "coverage>=-0.02", "same_answers")
"""Besides `DEFAULT_RULE_OF_MODEL` for each model.

7 % is half way between nothing and a server that takes 15 % longer, by their ratios: on two shared
cores that others kept busy, runs of the same code differed by up to 5 %
(docs/explanation/comparing.md)."""
DEFAULT_RULE_OF_MODEL = "solved_rate[model=...]>=-0.02"
"""Its intervals hold for all models together."""
