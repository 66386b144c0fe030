from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.compare.rules import GRAMMAR, METRICS, find_metric, parse_rule
from pytest_ultrapar.errors import ConfigError

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]*", fullmatch=True)
values = st.text(st.characters(blacklist_characters='"', blacklist_categories=("Cs", "Cc")))
spaces = st.sampled_from(["", " ", "  "])


@pytest.mark.parametrize(
    ("text", "metric", "filters", "bound", "form"),
    [
        ("throughput>=-10%", "throughput", {}, -0.1, "relative"),
        ("throughput>=120/min", "throughput", {}, 2, "absolute"),
        ("solved_rate[model=V3-0324]>=0.7", "solved_rate", {"model": "V3-0324"}, 0.7, "absolute"),
        ("latency.p95<=2.5s", "latency.p95", {}, 2.5, "absolute"),
        ("latency.p95<=+300ms", "latency.p95", {}, 0.3, "difference"),
        ("latency.p95 <= +15 %", "latency.p95", {}, 0.15, "relative"),
        ("score.x[suite=p, a=b]>=-1", "score.x", {"suite": "p", "a": "b"}, -1, "difference"),
        ("speedup>=3x", "speedup", {}, 3, "absolute"),
        ("makespan<=2min", "makespan", {}, 120, "absolute"),
        ("pass@3[model=x]>=0.8", "pass@3", {"model": "x"}, 0.8, "absolute"),
        ("changed<=0.1", "changed", {}, 0.1, "absolute"),
        (" same_answers ", "same_answers", {}, 0, "none"),
        ('same_answers[model="a, b][c"]', "same_answers", {"model": "a, b][c"}, 0, "none"),
    ],
)
def test_rule_is_parsed(text, metric, filters, bound, form):
    found = parse_rule(text)
    assert (found.text, found.metric, found.form) == (text.strip(), metric, form)
    assert dict(found.filters) == filters
    assert found.side == next((side for side in (">=", "<=") if side in text), "")
    assert found.bound == pytest.approx(bound)
    is_of_two = form in {"relative", "difference"} or metric in {"same_answers", "changed"}
    assert found.needs_baseline == is_of_two


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it must be METRIC[FILTER=VALUE,...] >= BOUND"),
        ("throughput", "throughput needs a bound; write throughput>=BOUND or throughput<=BOUND"),
        ("throughput=5", "unknown comparison =; write throughput>=BOUND"),
        ("throughput>=", "the bound '' is not a number"),
        ("throughput>=-10", None),
        ("throughput>=10%", "10% needs a sign, because a bound in % is relative to the baseline"),
        ("changed<=5%", "omit the sign and %; write the bound of changed as a share such as"),
        ("throughput>=5s", "the unit s does not fit throughput"),
        (
            "latency.p95<=2.5",
            "the bound has no unit; write the bound of latency.p95 as 2.5s, 300ms",
        ),
        ("solved_rate>=70", "solved_rate is a share from 0 to 1 (got 70)"),
        ("solved_rate>=-2", "solved_rate is a share from 0 to 1 (got -2)"),
        ("solved_rate>=nan", "the bound 'nan' is not a number"),
        ("througput>=5", "througput is not a metric; did you mean throughput?"),
        ("score.>=1", "score. is not a metric; did you mean score.NAME?"),
        ("pass@0>=0.8", "after pass@, write the number of repetitions (1 or more), as in pass@3"),
        ("pass@3>=80%", "write the bound of pass@3 as a share such as 0.98"),
        ("throughput[model=m]>=5", "throughput is a figure of the whole run and takes no filter"),
        ("same_answers>=0.9", "same_answers takes no bound"),
        ("changed<=+0.1", "changed is a comparison: omit the sign and %"),
        ("solved_rate[model]>=0.5", "[model] must be [NAME=VALUE]"),
        ("solved_rate[model=m,model=n]>=0.5", "the filter model is given twice"),
        ('solved_rate[model="m]>=0.5', "must be [NAME=VALUE]"),
    ],
)
def test_invalid_rule_is_refused_with_the_valid_form(text, says):
    if says is None:
        assert parse_rule(text).form == "difference"
        return
    with pytest.raises(ConfigError) as refused:
        parse_rule(text)
    assert str(refused.value).startswith(f"gate rule {text!r}: ")
    assert says in str(refused.value)


@given(
    metric=st.sampled_from(
        [each for each in METRICS if each.filters is None and each.unit != "none"]
    ),
    filters=st.dictionaries(names, values, max_size=3),
    side=st.sampled_from([">=", "<="]),
    number=st.decimals(0, 1, places=3),
    gap=spaces,
)
def test_any_valid_rule_is_parsed(metric, filters, side, number, gap):
    listed = f",{gap}".join(f'{name}{gap}={gap}"{value}"' for name, value in filters.items())
    unit = "s" if metric.unit == "seconds" else ""
    name = metric.name.replace("K", "12")
    head = f"{name}[{listed}]" if filters else name
    rule = parse_rule(f"{head}{gap}{side}{gap}{number}{unit}")
    assert rule.metric == name
    assert dict(rule.filters) == filters
    assert rule.side == side
    assert rule.bound == pytest.approx(float(number))
    assert rule.form == "absolute"


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_is_refused_with_a_sentence(text):
    said = ""
    try:
        metric = parse_rule(text).metric
    except ConfigError as error:
        metric, said = "throughput", str(error)
    assert find_metric(metric) is not None
    assert said.startswith("gate rule ") or not said


def test_examples_of_the_grammar_are_valid_rules():
    examples = [line.split("  ")[2] for line in GRAMMAR.splitlines() if line.startswith("    ")]
    assert [parse_rule(text).form for text in examples] == [
        "absolute",
        "difference",
        "relative",
        "none",
        "absolute",
    ]
