"""A task library that a user edited: one sentence says which file and field cannot be used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench_suites.library_check import check_library
from bench_suites.phases import phases_named
from bench_suites.selection import Selection
from bench_suites.workflow import (
    FLAWS,
    TASK_TYPES,
    TASKS,
    FlawError,
    LibraryError,
    check_room,
    flaw,
    flaw_set,
    library,
    tool,
)

ROOT = Path(__file__).parents[2]
CACHED = (
    library._load_tasks,
    library._load_by_type,
    library._load_descriptions,
    tool.load_tools,
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A copy of the library's files, used instead of them, with empty caches."""
    copied = tmp_path / "data"
    shutil.copytree(library.DATA, copied)
    monkeypatch.setattr(library, "DATA", copied)
    monkeypatch.setattr(tool, "_DATA", copied / "tools.json")
    for each in CACHED:
        each.cache_clear()
    yield copied
    for each in CACHED:
        each.cache_clear()


def change(path, changed):
    """Edit a JSON file: `changed` edits its content in place, or returns a new list."""
    content = json.loads(path.read_text())
    result = changed(content)
    path.write_text(json.dumps(result if isinstance(result, list) else content))


def config(*args, start=ROOT):
    return SimpleNamespace(invocation_params=SimpleNamespace(dir=start), args=list(args))


def chosen(*flaws, task_types=TASK_TYPES):
    return Selection(task_types, flaws, ("severe",), None, (), ())


def test_unedited_library_passes_the_check():
    TASKS.check()


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "tasks.json",
            lambda tasks: tasks[0].update(required=["nonsense_tool", *tasks[0]["required"][1:]]),
            "tasks.json: task 'simple-001', required: 'nonsense_tool' is not in tools.json",
        ),
        (
            "tasks.json",
            lambda tasks: [each for each in tasks if each["task_type"] != "data_pipeline"],
            "tasks.json has no task with task_type 'data_pipeline'",
        ),
        ("tasks.json", lambda tasks: [*tasks, tasks[3]], "task_id 'simple-004' occurs twice"),
        (
            "tasks.json",
            lambda tasks: tasks[2].update(task_id=7),
            "Expected `str`, got `int` - at `$[2]",
        ),
        (
            "tools.json",
            lambda tools: tools[0].update(dependencies=["nonsense_tool"]),
            "tools.json: dependencies of 'file_operations_reader': 'nonsense_tool' is not in",
        ),
        (
            "descriptions_very_hard.json",
            lambda texts: texts.pop("simple-028"),
            "descriptions_very_hard.json has no description of task 'simple-028'",
        ),
    ],
)
def test_error_in_an_edited_library_is_named_with_file_and_field(data, name, edit, message):
    change(data / name, edit)
    assert TASKS.edited() == (name,)
    with pytest.raises(LibraryError) as raised:
        TASKS.check()
    assert message in str(raised.value)
    with pytest.raises(pytest.UsageError) as refused:
        check_library(config("bench_suites/phase51"), chosen())
    said = str(refused.value)
    assert said.startswith(f"the task library was edited ({name}) and cannot be used: ")
    assert message in said
    assert "git restore" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", "tasks.json: the JSON ends too early (after 2 bytes)"),
        ("[,]", "tasks.json: JSON is malformed: invalid character (byte 1)"),
        ("{}", "tasks.json: Expected `array`, got `object`"),
        (None, "tasks.json cannot be read: No such file or directory"),
    ],
)
def test_invalid_library_file_is_named_with_the_place(data, content, message):
    path = data / "tasks.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert TASKS.edited() == ("tasks.json",)
    with pytest.raises(LibraryError) as raised:
        TASKS.check()
    assert str(raised.value) == message


def test_library_without_its_digests_counts_as_edited(data):
    (data / "digests.json").unlink()
    assert TASKS.edited() == library.FILES
    TASKS.check()


def without_room(data):
    """Keep only basic tasks without an order of steps, and return the flaws that fit none."""
    tasks = [task for task in TASKS.of_type("basic_task") if not _has_room(task)]
    kept = {task.task_id for task in tasks}
    change(
        data / "tasks.json",
        lambda content: [
            each for each in content if each["task_type"] != "basic_task" or each["task_id"] in kept
        ],
    )
    for each in CACHED:
        each.cache_clear()
    found = []
    for name in FLAWS:
        try:
            check_room(flaw(name), "basic_task")
        except FlawError:
            found.append(name)
    return found


def _has_room(task):
    try:
        flaw("sequence_disorder").apply(task.plan)
    except FlawError:
        return False
    return True


def test_flaw_that_fits_no_task_is_refused_with_a_remedy(data):
    lacking = without_room(data)
    assert "sequence_disorder" in lacking
    core = flaw_set("core")
    with pytest.raises(pytest.UsageError) as refused:
        check_library(config("bench_suites"), chosen(*core))
    said = str(refused.value)
    others = [name for name in core if name not in lacking]
    assert "flaw sequence_disorder (severe) cannot change the plan of any task of type basi" in said
    assert "git restore bench_suites/workflow/data" in said
    assert f", or run without sequence_disorder: --flaw-set {','.join(others)}" in said
    # Runs without the flaw or without that type of task are not refused.
    check_library(config("bench_suites"), chosen(*others))
    check_library(config("bench_suites/phase53"), chosen(*core, task_types=("data_pipeline",)))
    check_library(config("bench_suites/phase51", "bench_suites/phase54"), chosen(*core))


def test_library_is_not_checked_in_runs_without_a_phase(data):
    (data / "tasks.json").unlink()
    check_library(config("tests/unit"), chosen())


@pytest.mark.parametrize(
    ("args", "start", "phases"),
    [
        (["bench_suites"], ROOT, [f"phase5{number}" for number in range(1, 6)]),
        ([], ROOT, []),
        (["."], ROOT / "bench_suites" / "phase54", ["phase54"]),
        (["bench_suites/phase53/test_flawed_workflow.py::test_x[a/b]"], ROOT, ["phase53"]),
        (["bench_suites/phase55", "bench_suites/phase51"], ROOT, ["phase51", "phase55"]),
        (["benchmarks/overhead", "tests"], ROOT, []),
    ],
)
def test_named_phases_follow_from_the_arguments(args, start, phases):
    assert list(phases_named(config(*args, start=start))) == phases
