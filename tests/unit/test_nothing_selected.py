"""The reasons why no case was selected."""

from __future__ import annotations

from bench_suites.nothing_selected import reasons
from bench_suites.selection import Selection
from bench_suites.workflow import TASK_TYPES

MODELS = ("qwen2.5-3b-instruct", "DeepSeek-R1")


def chosen(flaws=("missing_step",), prompt_types=None):
    return Selection(TASK_TYPES, flaws, "severe", prompt_types, (), ())


def test_phase_with_cases_has_no_reason():
    phases = ("phase51", "phase52", "phase53", "phase54", "phase55")
    assert reasons(phases, chosen(), MODELS) == []


def test_prompt_types_of_other_phases_are_the_reason():
    assert reasons(["phase53"], chosen((), ("optimal",)), MODELS) == [
        "phase53 runs only flawed_* prompts; choose one with --prompt-type"
    ]
    assert reasons(["phase51", "phase53", "phase54"], chosen(prompt_types=()), MODELS) == [
        "phase51 runs no flawed_* prompts; choose another type with --prompt-type",
        "phase54 runs no flawed_* prompts; choose another type with --prompt-type",
    ]


def test_models_of_another_family_are_the_reason():
    assert reasons(["phase51", "phase52"], chosen(), MODELS[1:]) == [
        "phase52 runs only models that match qwen*; you selected DeepSeek-R1"
    ]
