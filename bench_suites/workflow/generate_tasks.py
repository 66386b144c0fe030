"""Writes the task library: `python -m bench_suites.workflow.generate_tasks [DIRECTORY]`.

The output has the same bytes every time, with every version of Python. After you change the seed or
the wording, review the difference.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.workflow.blueprint import LENGTHS, draw_sequence
from bench_suites.workflow.library import DATA, DIGESTS, FILES
from bench_suites.workflow.task import DIFFICULTIES, Difficulty, Task
from bench_suites.workflow.task_values import Draw, Setting, draw_inputs, draw_setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SEED = 20250901

_SHORT = {
    "simple_task": "simple",
    "basic_task": "basic",
    "data_pipeline": "pipeline",
    "api_integration": "api",
    "multi_stage_pipeline": "stages",
}

Wording = dict[str, dict[str, str]]
"""For each tool and kind of text, a clause with placeholders for the task's values."""


def generate() -> dict[str, bytes]:
    """The library's files by name, as bytes, and the digest of the handwritten `tools.json`."""
    draw = Draw(SEED)
    wording = msgspec.json.decode((DATA / "wording.json").read_bytes(), type=Wording)
    tasks: list[Task] = []
    descriptions: dict[Difficulty, dict[str, str]] = {name: {} for name in DIFFICULTIES}
    for task_type, lengths in LENGTHS.items():
        # Interleave lengths, so that even a few repetitions draw both short and long plans.
        for number, length in enumerate(_interleaved(lengths), 1):
            required = draw_sequence(task_type, length, draw)
            setting = draw_setting(required, draw)
            inputs = draw_inputs(required, setting, draw)
            texts = _texts(wording, required, setting, inputs)
            task_id = f"{_SHORT[task_type]}-{number:03}"
            tasks.append(
                Task(
                    task_id,
                    task_type,
                    required,
                    texts["purpose"],
                    inputs,
                    texts["outcome"][-2:],
                )
            )
            for difficulty in DIFFICULTIES:
                descriptions[difficulty][task_id] = describe(difficulty, texts[difficulty])
    rows = b",\n".join(msgspec.json.encode(task) for task in tasks)
    files = {"tasks.json": b"[\n" + rows + b"\n]\n"}
    for difficulty, by_id in descriptions.items():
        files[f"descriptions_{difficulty}.json"] = _mapping_lines(by_id)
    digested = {"tools.json": (DATA / "tools.json").read_bytes(), **files}
    files[DIGESTS] = _mapping_lines(
        {name: hashlib.blake2b(digested[name], digest_size=8).hexdigest() for name in FILES}
    )
    return files


def describe(difficulty: Difficulty, clauses: Sequence[str]) -> str:
    """A text with one clause for each step, in the wording of the difficulty."""
    first, *others = clauses
    if difficulty == "very_easy":
        return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)
    if difficulty == "easy":
        *middle, last = others
        return "; ".join(
            [f"First {first}", *(f"then {clause}" for clause in middle), f"finally {last}."]
        )
    if difficulty == "medium":
        return f"We want to {'; to '.join(clauses)}."
    if difficulty == "hard":
        return f"The undertaking is to {'; furthermore to '.join(clauses)}."
    return f"The mandate of this initiative is to {'; and on that foundation to '.join(clauses)}."


def _interleaved(lengths: Mapping[int, int]) -> list[int]:
    placed = [
        ((index + 0.5) / count, length)
        for length, count in lengths.items()
        for index in range(count)
    ]
    return [length for _, length in sorted(placed)]


def _texts(
    wording: Wording, required: Sequence[str], setting: Setting, inputs: Mapping[str, object]
) -> dict[str, tuple[str, ...]]:
    values = {"theme": setting.theme, **inputs}
    kinds = ("purpose", "outcome", *DIFFICULTIES)
    return {
        kind: tuple(wording[tool][kind].format_map(values) for tool in required) for kind in kinds
    }


def _mapping_lines(by_id: Mapping[str, str]) -> bytes:
    rows = [msgspec.json.encode(key) + b":" + msgspec.json.encode(by_id[key]) for key in by_id]
    return b"{\n" + b",\n".join(rows) + b"\n}\n"


def main() -> None:
    """Write the files into the package, or into the directory that the command line names."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    for name, content in generate().items():
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
