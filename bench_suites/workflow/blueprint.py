"""The sequences of tools in the library's tasks.

The counts per task type and plan length keep the original benchmark's numbers of tasks and mean
lengths (simple 2.98, basic 3.04, pipeline 4.29, api 3.04, multi-stage 4.94). The sequences are new.
Each contains the dependencies of its tools, and together they use all 30 tools; the original used
11.

Source: counted in the task library of github.com/Archer222arc/WorkflowBench at 8342eda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_suites.workflow.tool import load_tools

if TYPE_CHECKING:
    from bench_suites.workflow.task import TaskType
    from bench_suites.workflow.task_values import Draw

LENGTHS: dict[TaskType, dict[int, int]] = {
    "simple_task": {2: 1, 3: 39},
    "basic_task": {3: 144, 4: 6},
    "data_pipeline": {3: 20, 4: 95, 5: 75},
    "api_integration": {3: 163, 4: 7},
    "multi_stage_pipeline": {4: 15, 5: 55, 6: 10},
}
"""The number of tasks by type and length of the plan."""

_ORDER = (
    "helper authenticator connector router scanner fetcher reader parser mapper filter "
    "transformer data_processing_validator network_validator aggregator calculator analyzer "
    "predictor simulator optimizer converter compressor writer poster queue cache scheduler "
    "monitor tracker logger notifier"
)
"""A sensible order of work; it respects every dependency."""

_INTAKE = "scanner fetcher reader parser connector authenticator converter"
"""The tools of which a sensible sequence contains at least one."""

_GOALS: dict[TaskType, str] = {
    "simple_task": (
        "reader scanner converter compressor parser transformer data_processing_validator "
        "aggregator fetcher filter helper logger cache calculator"
    ),
    "basic_task": (
        "reader scanner converter compressor parser transformer data_processing_validator "
        "filter aggregator analyzer predictor simulator optimizer mapper connector fetcher "
        "helper logger tracker cache writer"
    ),
    "data_pipeline": (
        "parser transformer data_processing_validator filter aggregator writer calculator "
        "analyzer network_validator reader mapper cache logger writer aggregator compressor "
        "predictor"
    ),
    "api_integration": (
        "authenticator fetcher connector poster mapper queue router monitor parser transformer "
        "network_validator scheduler poster tracker"
    ),
    "multi_stage_pipeline": (
        "writer poster notifier analyzer calculator predictor optimizer simulator "
        "data_processing_validator aggregator fetcher authenticator scheduler tracker filter "
        "writer notifier queue compressor monitor"
    ),
}


def draw_sequence(task_type: TaskType, length: int, draw: Draw) -> tuple[str, ...]:
    """Draw tools in a sensible order, each after its dependencies.

    Args:
        task_type: The type whose goals to choose from.
        length: The number of tools, 2 to 6.
        draw: The generator's random numbers.
    """
    goals, order, intake = map(_full_names, (_GOALS[task_type], _ORDER, _INTAKE))
    while True:
        chosen: set[str] = set()
        while len(chosen) < length:
            chosen |= _with_needs(draw.one_of(goals))
        if len(chosen) == length and chosen.intersection(intake):
            return tuple(name for name in order if name in chosen)


def _with_needs(name: str) -> set[str]:
    found = {name}
    for need in load_tools()[name].dependencies:
        found |= _with_needs(need)
    return found


def _full_names(words: str) -> list[str]:
    return [_full_name(word) for word in words.split()]


def _full_name(word: str) -> str:
    if word in load_tools():
        return word
    return next(tool.name for tool in load_tools().values() if tool.operation == word)
