"""The task library in the repository, and the draw that gives every model the same tasks."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench_suites.workflow.data_file import LibraryError, read_data
from bench_suites.workflow.task import DIFFICULTIES, TASK_TYPES, Difficulty, Task, TaskType
from bench_suites.workflow.tool import load_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DATA = Path(__file__).parent / "data"
DIGESTS = "digests.json"
_TASKS = "tasks.json"
FILES = ("tools.json", _TASKS, *(f"descriptions_{name}.json" for name in DIFFICULTIES))
"""The files from which prompts are made."""


def file_digest(path: Path) -> str:
    """The digest of a file's content, as 16 hexadecimal digits.

    Raises:
        LibraryError: The file cannot be read.
    """
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError as error:
        msg = f"{path.name} cannot be read: {error.strerror or error}"
        raise LibraryError(msg) from error


class TaskLibrary:
    """All tasks. Files are read at first use, and descriptions only for requested difficulties.

    All methods that read a file raise LibraryError if the file is unusable.
    """

    @property
    def by_id(self) -> Mapping[str, Task]:
        """The 630 tasks, in the order of the file."""
        return _load_tasks()

    def of_type(self, task_type: str) -> tuple[Task, ...]:
        """The tasks of one type.

        Raises:
            ValueError: The type is unknown.
            LibraryError: The type has no task.
        """
        found = _load_by_type().get(task_type)
        if found is None:
            msg = f"task type {task_type!r} is unknown; allowed are {', '.join(TASK_TYPES)}"
            raise ValueError(msg)
        if not found:
            msg = f"{_TASKS} has no task with task_type {task_type!r}"
            raise LibraryError(msg)
        return found

    def description(self, task: Task, difficulty: Difficulty) -> str:
        """The description of a task, in the wording of that difficulty.

        Raises:
            ValueError: The difficulty is unknown.
            LibraryError: The task has no such description.
        """
        if difficulty not in DIFFICULTIES:
            msg = f"difficulty {difficulty!r} is unknown; allowed are {', '.join(DIFFICULTIES)}"
            raise ValueError(msg)
        found = _load_descriptions(difficulty).get(task.task_id)
        if found is None:
            msg = f"descriptions_{difficulty}.json has no description of task {task.task_id!r}"
            raise LibraryError(msg)
        return found

    def check(self) -> None:
        """Check that every task has a usable prompt at every difficulty.

        Only an edited library needs this check.

        Raises:
            LibraryError: A task or tool is invalid. The message names the file and the field.
        """
        for tool in load_tools().values():
            _refuse_unknown_tools(f"tools.json: dependencies of {tool.name!r}", tool.dependencies)
            _refuse_unknown_tools(f"tools.json: takes of {tool.name!r}", tool.takes)
        for task_type in TASK_TYPES:
            for task in self.of_type(task_type):
                _check_task(task)
                for difficulty in DIFFICULTIES:
                    self.description(task, difficulty)

    def digest(self) -> str:
        """A digest of all files from which prompts are made, as 16 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=8)
        for name in FILES:
            whole.update(f"{name} {file_digest(DATA / name)}\n".encode())
        return whole.hexdigest()

    def edited(self) -> tuple[str, ...]:
        """The names of the files that differ from the output of `generate_tasks`.

        A missing file is included. If the list of digests is unusable, all names are included.
        """
        made: dict[str, str] = {}
        with suppress(LibraryError):
            made = read_data(DATA / DIGESTS, dict[str, str])
        return tuple(name for name in FILES if _digest_or_none(name) != made.get(name, ""))

    def draw(self, task_type: str, repeat: int, run_seed: int) -> Task:
        """The task of a repetition: the same for every model, prompt type and level.

        The draw is without replacement: repetitions get different tasks until all tasks of the type
        are used, and then the same tasks again in the same order.

        Args:
            task_type: One of `TASK_TYPES`.
            repeat: Number of the repetition, from 0.
            run_seed: Seed of the run.

        Raises:
            ValueError: The type is unknown.
        """
        tasks = self.in_order(task_type, run_seed)
        return tasks[repeat % len(tasks)]

    def in_order(self, task_type: str, run_seed: int) -> tuple[Task, ...]:
        """The tasks of a type in the order in which repetitions draw them.

        Raises:
            ValueError: The type is unknown.
        """
        tasks = self.of_type(task_type)
        return tuple(tasks[at] for at in _order(task_type, len(tasks), run_seed))


TASKS = TaskLibrary()


@cache
def _load_tasks() -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for task in read_data(DATA / _TASKS, tuple[Task, ...]):
        if task.task_id in tasks:
            msg = f"{_TASKS}: task_id {task.task_id!r} occurs twice"
            raise LibraryError(msg)
        tasks[task.task_id] = task
    return tasks


@cache
def _load_by_type() -> dict[str, tuple[Task, ...]]:
    tasks = _load_tasks().values()
    return {kind: tuple(t for t in tasks if t.task_type == kind) for kind in TASK_TYPES}


@cache
def _load_descriptions(difficulty: Difficulty) -> dict[str, str]:
    return read_data(DATA / f"descriptions_{difficulty}.json", dict[str, str])


def _digest_or_none(name: str) -> str | None:
    try:
        return file_digest(DATA / name)
    except LibraryError:
        return None


def _check_task(task: Task) -> None:
    where = f"{_TASKS}: task {task.task_id!r}"
    _refuse_unknown_tools(f"{where}, required", task.required)
    if not task.required:
        msg = f"{where}: required must list at least one tool"
        raise LibraryError(msg)
    if len(task.purposes) != len(task.required):
        msg = (
            f"{where}: purposes must have as many entries as required, {len(task.required)}"
            f" (got {len(task.purposes)})"
        )
        raise LibraryError(msg)
    for at, name in enumerate(task.required):
        tool = load_tools()[name]
        for need in tool.dependencies:
            if need not in task.required[:at]:
                msg = f"{where}: required must list {need!r} before {name!r}, which needs it"
                raise LibraryError(msg)
        for parameter in tool.parameters:
            if parameter.required and parameter.name not in task.inputs:
                msg = f"{where}: inputs must contain {parameter.name!r}, which {name!r} needs"
                raise LibraryError(msg)


def _refuse_unknown_tools(where: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in load_tools():
            msg = f"{where}: {name!r} is not in tools.json"
            raise LibraryError(msg)


@cache
def _order(task_type: TaskType | str, n: int, run_seed: int) -> tuple[int, ...]:
    # Sort by digests to shuffle: this does not depend on the version of Python's `random`.
    def rank(index: int) -> bytes:
        text = f"{run_seed}/{task_type}/{index}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return tuple(sorted(range(n), key=rank))
