import re
import shutil

import pytest

from bench_suites.workflow import DIFFICULTIES, TASK_TYPES, TASKS, library, load_tools
from bench_suites.workflow.generate_tasks import generate
from bench_suites.workflow.library import DATA

TASK_LIST = list(TASKS.by_id.values())


def test_library_equals_the_generators_output_byte_for_byte():
    files = generate()
    assert len(files) == 7
    for name, content in files.items():
        assert (DATA / name).read_bytes() == content, f"{name} is not what the generator writes"


def test_edited_library_file_is_named_and_changes_the_digest(tmp_path, monkeypatch):
    made = TASKS.digest()
    shutil.copytree(DATA, tmp_path / "data")
    monkeypatch.setattr(library, "DATA", tmp_path / "data")
    assert (TASKS.edited(), TASKS.digest()) == ((), made)
    path = tmp_path / "data" / "descriptions_easy.json"
    path.write_text(path.read_text().replace("First", "Firstly", 1))
    assert TASKS.edited() == ("descriptions_easy.json",)
    assert TASKS.digest() != made


@pytest.mark.parametrize(
    ("task_type", "count", "mean", "shortest", "longest"),
    [
        ("simple_task", 40, 2.98, 2, 3),
        ("basic_task", 150, 3.04, 3, 4),
        ("data_pipeline", 190, 4.29, 3, 5),
        ("api_integration", 170, 3.04, 3, 4),
        ("multi_stage_pipeline", 80, 4.94, 4, 6),
    ],
)
def test_library_has_the_original_distribution(task_type, count, mean, shortest, longest):
    lengths = [len(task.required) for task in TASKS.of_type(task_type)]
    assert len(lengths) == count
    # As published: two digits, rounded half up, so 2.975 is 2.98.
    assert int(sum(lengths) / count * 100 + 0.5) / 100 == mean
    assert (min(lengths), max(lengths)) == (shortest, longest)


def test_library_plans_contain_every_dependency_before_its_user():
    for task in TASK_LIST:
        done = set()
        for tool in task.required:
            assert set(load_tools()[tool].dependencies) <= done, task.task_id
            done.add(tool)
        assert len(done) == len(task.required)


def test_library_texts_have_no_unfilled_placeholder():
    for task in TASK_LIST:
        texts = [*task.purposes, *task.expected_outputs]
        texts += [TASKS.description(task, difficulty) for difficulty in DIFFICULTIES]
        assert not [text for text in texts if re.search(r"[{}]", text)]
        assert len(task.purposes) == len(task.required)
        assert task.expected_outputs


def test_library_descriptions_grow_with_difficulty():
    means = [
        sum(len(TASKS.description(task, difficulty)) for task in TASK_LIST) / len(TASK_LIST)
        for difficulty in DIFFICULTIES
    ]
    assert means == sorted(means)
    assert means[-1] > 2 * means[0]


def test_library_hides_tool_names_in_harder_descriptions():
    def share(difficulty):
        named = [
            load_tools()[tool].operation in TASKS.description(task, difficulty)
            for task in TASK_LIST
            for tool in task.required
        ]
        return sum(named) / len(named)

    assert share("easy") > 0.9
    assert share("hard") < 0.05
    assert share("very_hard") < 0.05


def test_draw_is_paired_and_without_replacement():
    for task_type in TASK_TYPES:
        tasks = TASKS.of_type(task_type)
        drawn = [TASKS.draw(task_type, repeat, 11).task_id for repeat in range(len(tasks))]
        assert sorted(drawn) == sorted(task.task_id for task in tasks)
        assert TASKS.draw(task_type, len(tasks) + 3, 11).task_id == drawn[3]
        assert drawn != [TASKS.draw(task_type, repeat, 12).task_id for repeat in range(len(tasks))]


def test_draw_is_the_same_in_every_version():
    drawn = [TASKS.draw("data_pipeline", repeat, 0).task_id for repeat in range(4)]
    assert drawn == ["pipeline-128", "pipeline-022", "pipeline-132", "pipeline-045"]
