"""The task library as checked-in data, and the draw that gives every arm the same tasks."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.workflow.task import DIFFICULTIES, TASK_TYPES, Difficulty, Task, TaskType

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parent / "data"
DIGESTS = "digests.json"
FILES = ("tools.json", "tasks.json", *(f"descriptions_{name}.json" for name in DIFFICULTIES))
"""What a prompt is made from."""


def file_digest(path: Path) -> str:
    """The digest of a file's content, as 16 hexadecimal digits."""
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


class TaskLibrary:
    """All tasks; files are read at first use, descriptions only of the difficulties asked for."""

    @property
    def by_id(self) -> Mapping[str, Task]:
        """The 630 tasks, in the order of the file."""
        return _load_tasks()

    def of_type(self, task_type: str) -> tuple[Task, ...]:
        """The tasks of one type.

        Raises:
            ValueError: There is no such type.
        """
        found = _load_by_type().get(task_type)
        if found is None:
            msg = f"task type {task_type!r} is unknown; allowed are {', '.join(TASK_TYPES)}"
            raise ValueError(msg)
        return found

    def description(self, task: Task, difficulty: Difficulty) -> str:
        """What the task asks for, worded at that difficulty.

        Raises:
            ValueError: There is no such difficulty.
        """
        if difficulty not in DIFFICULTIES:
            msg = f"difficulty {difficulty!r} is unknown; allowed are {', '.join(DIFFICULTIES)}"
            raise ValueError(msg)
        return _load_descriptions(difficulty)[task.task_id]

    def digest(self) -> str:
        """A digest of all files that a prompt is made from, as 16 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=8)
        for name in FILES:
            whole.update(f"{name} {file_digest(DATA / name)}\n".encode())
        return whole.hexdigest()

    def edited(self) -> tuple[str, ...]:
        """Names of the files that are not as `generate_tasks` left them, however that came."""
        made = msgspec.json.decode((DATA / DIGESTS).read_bytes(), type=dict[str, str])
        return tuple(name for name in FILES if file_digest(DATA / name) != made.get(name))

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
    tasks = msgspec.json.decode((DATA / "tasks.json").read_bytes(), type=tuple[Task, ...])
    return {task.task_id: task for task in tasks}


@cache
def _load_by_type() -> dict[str, tuple[Task, ...]]:
    tasks = _load_tasks().values()
    return {kind: tuple(t for t in tasks if t.task_type == kind) for kind in TASK_TYPES}


@cache
def _load_descriptions(difficulty: Difficulty) -> dict[str, str]:
    data = (DATA / f"descriptions_{difficulty}.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, str])


@cache
def _order(task_type: TaskType | str, n: int, run_seed: int) -> tuple[int, ...]:
    # Sorting by digests is a shuffle that no later version of Python's `random` can change.
    def rank(index: int) -> bytes:
        text = f"{run_seed}/{task_type}/{index}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return tuple(sorted(range(n), key=rank))
