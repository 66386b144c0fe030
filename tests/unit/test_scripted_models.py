"""Scripted models, each with the verdict that a person gave."""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bench_suites.workflow import TASKS, score
from tests.unit.workflow_models import Native, Said, Scripted, call, calls_of, run

TASK = TASKS.by_id["pipeline-006"]
MODELS = tomllib.loads(Path(__file__).with_suffix(".toml").with_stem("scripted_models").read_text())
NEEDLESS = call("utility_cache", cache_key="a:b")


def filled(text: str, due: int) -> str:
    """A text with its «placeholders» replaced by calls; `due` is the index of the next step."""
    step = TASK.plan.steps[min(due, len(TASK.plan.steps) - 1)]
    arguments = dict(step.parameters)
    stands = {
        "call": call(step.tool, **arguments),
        "tool": step.tool,
        "args": json.dumps(arguments),
        "params": "\n".join(
            f"<parameter={name}>\n{value}\n</parameter>" for name, value in arguments.items()
        ),
        "kwargs": ", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        "x": NEEDLESS,
        **{f"call {at}": one for at, one in enumerate(calls_of(TASK.plan), 1)},
    }
    return re.sub("«(.*?)»", lambda found: stands[found[1]], text)


def said(message: str | dict[str, Any], due: int) -> Said:
    """A message of a model whose next step is `due`."""
    fields = {"text": message} if isinstance(message, str) else dict(message)
    native = fields.pop("native", None)
    return Said(
        filled(fields.get("text", ""), due),
        filled(fields["reasoning"], due) if "reasoning" in fields else None,
        (Native(*(filled(each, due) for each in native)),) if native else (),
        fields.get("finish", "stop"),
        fields.get("refusal"),
    )


def verdict(model: dict[str, Any]):
    n = model.get("n", len(TASK.plan.steps))
    last = [said(one, n) for one in model.get("last", ["TASK_COMPLETED"])]
    script = [
        *(said(one, 0) for one in model.get("before", [])),
        *(said(model.get("each", "«call»"), due) for due in range(n)),
        *last,
        *last[-1:] * 10,
    ]
    return score(run(Scripted(script), TASK, tool_success_rate=1.0))


def test_there_are_enough_scripted_models():
    assert len(MODELS["model"]) >= 60
    assert len({one["name"] for one in MODELS["model"]}) == len(MODELS["model"])


@pytest.mark.parametrize("model", MODELS["model"], ids=lambda one: one["name"])
def test_scripted_model_gets_the_verdict_of_a_person(model):
    found = verdict(model)
    assert (found.outcome, found.kind) == (model["outcome"], model.get("kind"))
    assert found.scores["steps"] == model.get("steps", found.scores["steps"])
    assert found.scores["needless"] == model.get("n_needless", found.scores["needless"])


def test_scripted_models_that_differ_only_in_wording_or_format_get_the_same_verdict():
    alike = defaultdict(dict)
    for model in MODELS["model"]:
        if "alike" in model:
            found = verdict(model)
            what = found.outcome, found.kind, found.scores["steps"], found.scores["needless"]
            alike[model["alike"]][model["name"]] = what
    assert len(alike) >= 10
    for label, verdicts in alike.items():
        assert len(set(verdicts.values())) == 1, (label, verdicts)
