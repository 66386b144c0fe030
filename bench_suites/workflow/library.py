"""The task library as checked-in data, and the draw that gives every arm the same tasks."""

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
"""What a prompt is made from."""


def file_digest(path: Path) -> str:
    """The digest of a file's content, as 16 hexadecimal digits.

    Raises:
        LibraryError: It cannot be read.
    """
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError as error:
        msg = f"{path.name} cannot be read: {error.strerror or error}"
        raise LibraryError(msg) from error


class TaskLibrary:
    """All tasks; files are read at first use, descriptions only of the difficulties asked for.

    Whatever reads a file raises LibraryError where that cannot be used.
    """

    @property
    def by_id(self) -> Mapping[str, Task]:
        """The 630 tasks, in the order of the file."""
        return _load_tasks()

    def of_type(self, task_type: str) -> tuple[Task, ...]:
        """The tasks of one type.

        Raises:
            ValueError: There is no such type.
            LibraryError: It has no task.
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
        """What the task asks for, worded at that difficulty.

        Raises:
            ValueError: There is no such difficulty.
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
        """Make sure that every task can be asked at every difficulty.

        What the generator made needs no check; an edited library does.

        Raises:
            LibraryError: Naming the file and the field of the first fault.
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
        """A digest of all files that a prompt is made from, as 16 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=8)
        for name in FILES:
            whole.update(f"{name} {file_digest(DATA / name)}\n".encode())
        return whole.hexdigest()

    def edited(self) -> tuple[str, ...]:
        """Names of the files that are not as `generate_tasks` left them, however that came.

        A missing file is one of them; where the list of digests itself is unusable, all are.
        """
        made: dict[str, str] = {}
        with suppress(LibraryError):
            made = read_data(DATA / DIGESTS, dict[str, str])
        return tuple(name for name in FILES if _digest_or_none(name) != made.get(name, ""))

    def draw(self, task_type: str, repeat: int, run_seed: int) -> Task:
        """The task of a repetition: the same for every model, prompt type and level.

        Without replacement: repetitions 0 to n-1 are n different tasks while the type has that
        many; then they come again in the same order.

        Args:
            task_type: One of `TASK_TYPES`.
            repeat: Number of the repetition, from 0.
            run_seed: Seed of the run.

        Raises:
            ValueError: There is no such type.
        """
        tasks = self.in_order(task_type, run_seed)
        return tasks[repeat % len(tasks)]

    def in_order(self, task_type: str, run_seed: int) -> tuple[Task, ...]:
        """The tasks of a type in the order in which repetitions draw them.

        Raises:
            ValueError: There is no such type.
        """
        tasks = self.of_type(task_type)
        return tuple(tasks[at] for at in _order(task_type, len(tasks), run_seed))


TASKS = TaskLibrary()


@cache
def _load_tasks() -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for task in read_data(DATA / _TASKS, tuple[Task, ...]):
        if task.task_id in tasks:
            msg = f"{_TASKS}: task_id {task.task_id!r} is there twice"
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
        msg = f"{where}: required names no tool"
        raise LibraryError(msg)
    if len(task.purposes) != len(task.required):
        msg = (
            f"{where}: purposes must be as many as required, {len(task.required)}"
            f" (got {len(task.purposes)})"
        )
        raise LibraryError(msg)
    for at, name in enumerate(task.required):
        tool = load_tools()[name]
        for need in tool.dependencies:
            if need not in task.required[:at]:
                msg = f"{where}: required has no {need!r} before {name!r}, which needs it"
                raise LibraryError(msg)
        for parameter in tool.parameters:
            if parameter.required and parameter.name not in task.inputs:
                msg = f"{where}: inputs has no {parameter.name!r}, which {name!r} needs"
                raise LibraryError(msg)


def _refuse_unknown_tools(where: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in load_tools():
            msg = f"{where}: {name!r} is no tool of tools.json"
            raise LibraryError(msg)


@cache
def _order(task_type: TaskType | str, n: int, run_seed: int) -> tuple[int, ...]:
    # Sorting by digests is a shuffle that no later version of Python's `random` can change.
    def rank(index: int) -> bytes:
        text = f"{run_seed}/{task_type}/{index}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return tuple(sorted(range(n), key=rank))
